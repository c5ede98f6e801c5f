"""What is read from HLO of what a program communicates; that it is what is predicted stands in sharding_test.py."""

import communication
import pytest

from experiments.pipeline import cost
from experiments.settings import config as config_lib
from experiments.studies import registry

PROGRAM = """
HloModule jit_f, entry_computation_layout={(f32[8]{0})->f32[8]{0}}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
}

%dear (a: (f32[8])) -> f32[8] {
  %all-reduce.9 = f32[1000]{0} all-reduce(%z), replica_groups={}, to_apply=%add
}

%cheap (a: (f32[8])) -> f32[8] {
  %all-gather.1 = bf16[8,4]{1,0} all-gather(%z), replica_groups=[2,4]<=[8], dimensions={0}
}

%body (s: (f32[8])) -> (f32[8]) {
  %conditional = f32[8] conditional(%p, %a, %b), branch_computations={%dear, %cheap}, metadata={op_name="cond"}
  %all-to-all.2 = (f32[4]{0}, f32[4]{0}) all-to-all(%a, %b), replica_groups={{0,1},{2,3},{4,5},{6,7}}
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %while = (f32[8]) while(%t), condition=%c, body=%body, backend_config={"known_trip_count":{"n":"5"}}
  %fusion = f32[8] fusion(%x), kind=kLoop, calls=%add
  %reduce-scatter = f32[2]{0} reduce-scatter(%x), replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}, to_apply=%add
  %permute = (f32[6], f32[6], u32[], u32[]) collective-permute-start(%y), source_target_pairs={{0,1},{1,0}}
  %all-gather-start = (f32[2], f32[8]) all-gather-start(%x), replica_groups=[2,4]<=[8], dimensions={0}
}
"""


def test_each_collective_counts_as_often_as_it_runs():
  """In a loop of five rounds the cheaper branch; bytes are those of the larger side on one device."""
  found = [(one.operation, one.size, one.group_size, one.times) for one in communication.collectives(PROGRAM, 8)]
  assert found == [
    ('all-gather', 64, 4, 5),
    ('all-to-all', 32, 2, 5),
    ('reduce-scatter', 32, 4, 1),
    ('collective-permute', 24, 2, 1),
    ('all-gather', 32, 4, 1),
  ]


def test_what_each_device_sends_is_that_of_a_ring():
  """A step of five in the loop, by operation."""
  assert communication.sent(PROGRAM, 8, 5) == {
    'all-reduce': 0,
    'all-gather': pytest.approx(64 * 3 / 4 + 32 * 3 / 4 / 5),
    'all-to-all': pytest.approx(32 / 2),
    'reduce-scatter': pytest.approx(32 * 3 / 4 / 5),
    'collective-permute': pytest.approx(24 / 5),
  }
  assert communication.SENT['all-reduce'](80, 4) == 120


def test_a_loop_of_unknown_length_that_communicates_is_refused():
  with pytest.raises(ValueError, match='unknown length'):
    communication.collectives(PROGRAM.replace('known_trip_count', 'other'), 8)


@pytest.mark.parametrize(
  ('written', 'size'),
  [
    ('{{0,4},{1,5}}', 2),
    ('{}', 8),
    ('[2,4]<=[8]', 4),
    ('[4,2]<=[2,2,2]T(2,1,0)', 2),
    ("mesh['axis_0'=2,'axis_1'=4] {'axis_1'}", 4),
    ("mesh['axis_0'=2,'axis_1'=4] {'axis_0'}", 2),
    ("mesh['axis_0'=4,'axis_1'=2], device_ids=([2,4]T(1,0)) {'axis_1'}", 2),
    ("mesh['axis_0'=2,'axis_1'=2,'axis_2'=2] {'axis_0','axis_2'}", 4),
  ],
)
def test_groups_are_read_in_every_notation(written, size):
  line = f'  %r = f32[4] all-reduce(%x), channel_id=1, replica_groups={written}, use_global_device_ids=true'
  assert communication._group_size(line, 8) == size


def test_an_unknown_notation_is_refused():
  with pytest.raises(ValueError, match='not known'):
    communication._group_size("replica_groups=mesh['a'=8] {'a':(1)2}", 8)


def test_gradients_are_sent_around_a_ring_or_not_at_all():
  """Each of n devices sends 2 (n - 1) / n of them, of the word embedding two. What XLA does: sharding_test."""
  settings = registry.from_config(config_lib.shipped('prompt_vs_head')['get_config']('smoke'))
  embedding = (settings.hmm.num_tokens + 1) * settings.bert.width
  gradients = 4 * (cost.num_params(settings) + embedding)
  for num_devices, times in ((1, 0), (2, 1), (8, 1.75)):
    sent = communication.predicted(settings, num_devices, 1, 1)
    assert sent.pop('all-reduce') == pytest.approx(times * gradients) and not any(sent.values())
