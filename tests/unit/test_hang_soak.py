"""Jobs that are silent and do well are not called hung: some hours of the soak of `tests/provoke`."""

from tests.provoke.hang_soak import soak


def test_no_false_alarm_in_simulated_hours_of_compiles_evaluations_and_slow_storage() -> None:
    jobs, steps, looks, alarms = soak(30.0, seed=7)
    assert alarms == [] and jobs > 3 and steps > 1000
    assert looks > 50, "it was put to the test"
