"""Plumbing under the library: conversion of arguments, float64, batching, rational arithmetic."""
