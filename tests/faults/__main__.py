"""python -m tests.faults [KIND ...]: tries all scenarios, or those of some kinds; exit status 1 if one is lost.

The checkout is to stay as it is meanwhile: environments on record name its commit.
"""

import os
import pathlib
import sys

import pytest

if __name__ == '__main__':
  os.environ['FAULTS'] = 'whole'
  tests = str(pathlib.Path(__file__).parent / 'faults_test.py')
  sys.exit(pytest.main([tests, '-v', '-m', '', '-k', ' or '.join(sys.argv[1:])]))
