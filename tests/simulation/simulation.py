"""The whole system in one thread, by a seed: agents, server, store, network, clock and faults (ring
3 of the tests).

    python -m tests.simulation.simulation --seeds 1000            # or --seconds 600, or --seed 42 for one

Real: `agent/shim/machine.py` and `agent/ship/machine.py`, `server/control/control.py` with
`server/control/loop.py` and `server/control/reconcile.py`, the store on a real file. Simulated:
time, processes, files of the spool, the network. Each seed is one story of a few jobs, some with
several tasks, with some faults for two minutes, then calm until everything has settled; then the
checkers look. A failing seed is printed and fails again the same way.
"""

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import UUID

from headway.agent.shim.machine import StopAsked
from headway.home.paths import Paths
from headway.model.errors import RefusedError
from tests.simulation.sim_agent import Driver, Shim
from tests.simulation.sim_check import History
from tests.simulation.sim_engine import SimEngine
from tests.simulation.sim_server import SimServer
from tests.simulation.sim_task import Program
from tests.simulation.sim_world import NO_REPLY, Reply, Violation, World

CHAOS_S = 120.0
CALM_S = 3600.0
LOOK_S = 1.0


class Simulation:
    """`several`: some jobs of some seeds have several tasks."""

    def __init__(self, seed: int, folder: Path, *, several: bool = True) -> None:
        self.world = World(seed)
        # apart, so that the stories of older seeds stay as they were
        self.life = random.Random(f"life {seed}")
        self.many = random.Random(f"many {seed}")  # likewise
        self.several = several and self.many.random() < 0.6
        self.engine = SimEngine(self.world, self._cut_short)
        self.history = self.world.history = History(self.engine)
        paths = Paths(folder)
        world = self.world
        self.server = world.server = SimServer(
            paths, world.clock, self.engine, world.strikes, self._let_pass
        )

    def run(self) -> None:
        world = self.world
        self._start_server()
        for _ in range(world.random.randint(1, 5)):
            self._plan_job()
        world.agenda.after(LOOK_S, self._look)
        world.agenda.after(world.between(1.0, 10.0), self._strike)
        world.agenda.run_until(CHAOS_S)
        world.chaos = False
        while not self.history.settled(self.server):
            if world.clock.now_s > CALM_S:
                raise Violation(f"it did not settle: {self._open()}")
            world.agenda.run_until(world.clock.now_s + 5.0)
        self.history.check_end(self.server)

    def _open(self) -> str:
        tasks = [
            f"{t.key}: begun {t.begun}, shim {t.shim is not None}, shipper {t.shipper is not None}, "
            f"drained {t.spool.is_drained()}, living {len(t.living())}"
            for t in self.engine.made.values()
        ]
        return f"{self.history.states}; {tasks}; not accepted: {self.history.submitted - set(self.history.accepted)}"

    def _cut_short(self) -> bool:
        return self.world.chaos and bool(self.world.rates) and self.many.random() < 0.15

    # -- the server

    def _start_server(self) -> None:
        if not self.server.is_up:
            self.server.start()
            self.history.observe(self.server)

    def _let_pass(self) -> None:
        self.world.agenda.run_until(self.world.clock.now_s + self.world.between(0.01, 5.0))

    def _look(self) -> None:
        world = self.world
        if self.server.is_busy:
            pass  # this is what happens while it looks
        elif self.server.is_up:
            self.server.look()
            self.history.observe(self.server)
        elif world.random.random() < 0.2 or not world.chaos:
            self._start_server()
        world.agenda.after(world.between(0.2, LOOK_S), self._look)

    # -- people

    def _plan_job(self) -> None:
        world = self.world
        uuid = str(UUID(int=world.random.getrandbits(128), version=4))
        ranks = world.random.choice((1, 1, 2, 3))
        limit_s = world.between(1.0, 60.0) if world.random.random() < 0.2 else None
        self.engine.programs[uuid] = [[[_program(world.random) for _ in range(ranks)]]]
        self.engine.limits_s[uuid] = limit_s
        spec = {"command": ["train"], "cwd": "/", "name": "job", **self._plan_life(uuid, ranks)}
        spec |= self._plan_tasks(uuid, ranks)
        begin_s = world.between(0.0, 60.0)
        world.agenda.after(begin_s, partial(self._submit, uuid, spec))
        if world.random.random() < 0.4:
            world.agenda.after(begin_s + world.between(0.0, 60.0), partial(self._abort, uuid))

    def _plan_life(self, uuid: str, ranks: int) -> dict[str, object]:
        """Retries, a hold, and jobs to wait for, in some of the jobs of some seeds."""
        life = self.life
        if life.random() < 0.3:
            return {}
        self.engine.programs[uuid] += [
            [[_program(life, _LATER_ENDS) for _ in range(ranks)]] for _ in range(3)
        ]
        if life.random() < 0.3:
            self.engine.programs[uuid][0] = [[_program(life, _LATER_ENDS) for _ in range(ranks)]]
        retry = {
            "max": life.choice((0, 1, 2, 3)),
            "total_max": life.choice((1, 3, 5)),
            "backoff_s": 3.0,
        }
        asked: dict[str, object] = {"retry": retry, "hold_s": life.choice((0.0, 0.0, 20.0))}
        earlier = [known for known in self.engine.programs if known != uuid]
        if earlier and life.random() < 0.4:
            self.history.after[uuid] = life.choice(earlier)
        return asked

    def _plan_tasks(self, uuid: str, ranks: int) -> dict[str, object]:
        """Further tasks for each attempt. Where a rank will fail by itself, one of another task may
        go on for longer than the whole story: it is over in time only if somebody ends it.
        """
        many = self.many
        nodes = many.choice((1, 2, 2, 3)) if self.several else 1
        # those ask for more tries than one
        ends = _LATER_ENDS if len(self.engine.programs[uuid]) > 1 else _ENDS
        for tasks in self.engine.programs[uuid] if nodes > 1 else []:
            tasks += [[_program(many, ends) for _ in range(ranks)] for _ in range(nodes - 1)]
            failing = {
                at for at, programs in enumerate(tasks) if any(p.exit_code != 0 for p in programs)
            }
            for at, programs in enumerate(tasks):
                if failing - {at} and many.random() < 0.3:
                    programs[0] = replace(
                        programs[0], seconds=2 * CALM_S, exit_code=0, signal=None, points=0, text=0
                    )
                    failing.discard(at)
        return {"nodes": nodes, "processes": ranks * nodes}

    def _submit(self, uuid: str, spec: dict[str, object]) -> None:
        """A person submits, and submits the same again until an answer comes (P9)."""
        needed = self.history.after.get(uuid)
        if needed in self.history.accepted and uuid not in self.history.submitted:
            self.history.waits[uuid] = str(needed)  # the same when the submission must be repeated
        self.history.submitted.add(uuid)
        after = [self.history.waits[uuid]] if uuid in self.history.waits else []

        def call() -> Reply:
            try:
                job = self.server.submit(uuid, {**spec, "after": after})
            except RefusedError:  # what it should wait for has failed meanwhile
                return 409, None
            return NO_REPLY if job is None else (200, job.id)

        def answered(reply: Reply) -> None:
            if reply[0] == 409:
                self.history.submitted.discard(uuid)
                return
            if reply[0] != 200:
                self.world.agenda.after(1.0, partial(self._submit, uuid, spec))
                return
            known = self.history.accepted.setdefault(uuid, reply[1])
            if known != reply[1]:
                raise Violation(f"one submission, two jobs: {known} and {reply[1]}")

        self.world.request(call, answered)

    def _abort(self, uuid: str) -> None:
        if uuid not in self.history.accepted:
            if not self.world.chaos and uuid not in self.history.submitted:
                return  # it was refused
            self.world.agenda.after(1.0, partial(self._abort, uuid))
            return
        self.history.aborted.add(uuid)

        def call() -> Reply:
            return (200, None) if self.server.abort(uuid) else NO_REPLY

        def answered(reply: Reply) -> None:
            if reply[0] != 200:
                self.world.agenda.after(1.0, partial(self._abort, uuid))

        self.world.request(call, answered)

    # -- faults

    def _strike(self) -> None:
        """One of the large faults, now and then."""
        world = self.world
        if not world.chaos:
            return
        tasks = [task for task in self.engine.made.values() if not task.spool.removed]
        shims = [task.shim for task in tasks if task.shim is not None and task.begun]
        shippers = [task.shipper for task in tasks if task.shipper is not None]
        ranks = [rank for task in tasks for rank in task.living()]
        if world.strikes("kill the server"):
            self.server.kill()
        if shippers and world.strikes("kill a shipper"):
            world.random.choice(shippers).die()
        if shims and world.strikes("kill a shim"):
            world.random.choice(shims).die()
        if ranks and world.strikes("kill a rank"):
            world.random.choice(ranks).kill()
        running = [shim for shim in shims if shim.alive and shim.machine.phase == "running"]
        if running and self.life.random() < 0.05:
            self._preempt(self.life.choice(running))
        agents: list[Driver] = [agent for agent in shims + shippers if agent.alive]
        if agents and world.strikes("stop an agent for a while"):
            world.random.choice(agents).sleep(world.between(1.0, 90.0))
        if world.strikes("set the clock"):
            world.clock.step(world.between(-3600.0, 3600.0))
        if world.strikes("housekeeping"):
            self.server.tidy()
        world.agenda.after(world.between(1.0, 15.0), self._strike)

    def _preempt(self, shim: Shim) -> None:
        """Somebody else's SIGTERM: the machine is wanted (F32)."""
        shim.task.story.append("preempted")
        shim.feed(StopAsked("signal 15"))


_ENDS = ((0, None), (0, None), (0, None), (1, None), (3, None), (None, 11))
_LATER_ENDS = ((0, None), (1, None), (200, None), (201, None), (210, None), (None, 11), (None, 9))


def _program(
    random: random.Random, ends: tuple[tuple[int | None, int | None], ...] = _ENDS
) -> Program:
    code, signal = random.choice(ends)
    on_term = random.choice(("die", "die", "exit 0", "exit 1", "ignore"))
    points, text = random.choice((0, 1, 5, 20)), random.choice((0, 0, 50, 2000))
    return Program(random.uniform(0.05, 60.0), code, signal, on_term, points, text)


def run_seed(seed: int, folder: Path | None = None, *, several: bool = True) -> World:
    """One story. Raises Violation, or whatever went wrong, with the seed in front."""
    base = "/dev/shm" if Path("/dev/shm").is_dir() else None
    place = Path(tempfile.mkdtemp(prefix="hwsim", dir=folder or base))
    simulation = None
    try:
        simulation = Simulation(seed, place, several=several)
        simulation.run()
        return simulation.world
    except Exception as error:  # whatever goes wrong in a story is a finding, told with its seed
        faults = simulation.world.struck if simulation else {}
        now_s = simulation.world.clock.now_s if simulation else 0.0
        raise Violation(
            f"seed {seed}, at {now_s:.3f} s, faults {faults}: {type(error).__name__}: {error}"
        ) from error
    finally:
        if simulation is not None:
            simulation.server.close()
        shutil.rmtree(place, ignore_errors=True)


def run_many(first: int, seeds: int | None, seconds: float | None) -> tuple[int, dict[str, int]]:
    """(seeds run, how often each fault struck), until the number or the time is reached."""
    begin_s, count = time.monotonic(), 0
    struck: dict[str, int] = {}
    while (seeds is None or count < seeds) and (
        seconds is None or time.monotonic() - begin_s < seconds
    ):
        for name, times in run_seed(first + count).struck.items():
            struck[name] = struck.get(name, 0) + times
        count += 1
    return count, struck


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulation.simulation", description=__doc__
    )
    parser.add_argument("--seeds", type=int, help="how many")
    parser.add_argument("--seconds", type=float, help="for how long")
    parser.add_argument(
        "--first", type=int, default=None, help="the first seed (default: from the clock)"
    )
    parser.add_argument("--seed", type=int, help="only this one")
    asked = parser.parse_args(argv)
    logging.disable(logging.CRITICAL)
    first = asked.first if asked.first is not None else time.time_ns() // 10**6
    seeds = asked.seeds if asked.seeds or asked.seconds else 100
    begin_s = time.monotonic()
    try:
        if asked.seed is not None:
            first, seeds = asked.seed, 1
        count, struck = run_many(first, seeds, asked.seconds)
    except Violation as error:
        traceback.print_exception(error)
        sys.stdout.write(
            f"\nto see it again: python -m tests.simulation.simulation --seed {_seed_of(error)}\n"
        )
        return 1
    took_s = time.monotonic() - begin_s
    sys.stdout.write(
        f"{count} seeds from {first} in {took_s:.1f} s ({count / took_s:.1f} per second); faults: {struck}\n"
    )
    return 0


def _seed_of(error: Violation) -> str:
    return str(error).split(",")[0].removeprefix("seed ")


if __name__ == "__main__":
    sys.exit(main())
