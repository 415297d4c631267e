"""The rules of the harness: `python -m unittest discover -s benches/search/peers`."""

from __future__ import annotations

import math
import tempfile
import unittest
from pathlib import Path
from typing import Optional

import recorded
from harness import Answer, Ended, Kind, Session, converse
from recorded import Config, Measured, Parameter, Table


def table(times: list[Optional[float]]) -> Table:
    """One parameter, a setting for each time; `None` fails."""
    rows: dict[Config, Optional[Measured]] = {
        (at,): None if time is None else Measured(math.log(time), 0.1) for at, time in enumerate(times)
    }
    best = min(row.log_time for row in rows.values() if row is not None)
    settings = tuple(str(at) for at in range(len(times) + 1))
    return Table("made-up", (Parameter("x", settings, True),), rows, best)


class Fixed:
    """Asks for what it was given, and again for the last; keeps what it heard."""

    def __init__(self, asks: list[Config]) -> None:
        self.asks = asks
        self.heard: list[tuple[Config, Kind, Optional[float]]] = []
        self.informed: list[Config] = []

    def ask(self) -> Config:
        return self.asks.pop(0) if len(self.asks) > 1 else self.asks[0]

    def tell(self, config: Config, answer: Answer, worst: Optional[float]) -> None:
        self.heard.append((config, answer.kind, worst))

    def inform(self, config: Config, answer: Answer, worst: Optional[float]) -> None:
        self.informed.append(config)


class Rules(unittest.TestCase):
    """What a probe is and what it costs."""

    def test_only_new_configs_of_the_space_are_probes(self) -> None:
        session = Session(table([4.0, 2.0, 3.0]), budget=2, seed=0)
        self.assertEqual(session.answer((0,)), (Answer(Kind.RAN, math.log(4.0)), True))
        self.assertFalse(session.answer((0,))[1])
        self.assertEqual(session.answer((3,)), (Answer(Kind.OUTSIDE, None), False))
        self.assertEqual((session.probes, session.repeats, session.outside), (1, 1, 1))

    def test_a_failure_is_a_probe_and_no_result(self) -> None:
        session = Session(table([None, 2.0, 3.0]), budget=3, seed=0)
        self.assertEqual(session.answer((0,)), (Answer(Kind.FAILED, None), True))
        self.assertEqual((session.probes, session.failed, session.curve, session.worst), (1, 1, [], None))
        session.answer((2,))
        self.assertEqual([probe for probe, _ in session.curve], [2])
        self.assertAlmostEqual(session.curve[0][1], 1.0 - 2.0 / 3.0)

    def test_the_budget_ends_a_run(self) -> None:
        session = Session(table([4.0, 2.0, 3.0]), budget=1, seed=0)
        session.answer((0,))
        self.assertTrue(session.has_ended)
        with self.assertRaises(Ended):
            session.answer((1,))
        self.assertEqual(session.answer((0,))[0].log_time, math.log(4.0), "what is known is still answered")

    def test_the_best_ends_a_run_unless_there_is_noise(self) -> None:
        for noise in (False, True):
            session = Session(table([4.0, 2.0, 3.0]), budget=3, seed=0, has_noise=noise)
            session.answer((1,))
            self.assertEqual(session.has_ended, not noise)

    def test_a_space_that_is_used_up_ends_a_run(self) -> None:
        session = Session(table([4.0, 2.0]), budget=100, seed=0, has_noise=True)
        session.answer((0,))
        session.answer((1,))
        self.assertTrue(session.has_ended)

    def test_noise_moves_what_is_heard_and_not_what_is_scored(self) -> None:
        session = Session(table([4.0, 2.0]), budget=2, seed=1, has_noise=True)
        answer, _ = session.answer((0,))
        self.assertNotEqual(answer.log_time, math.log(4.0))
        self.assertAlmostEqual(session.curve[0][1], 0.5)
        self.assertEqual(session.answer((0,))[0], answer, "the same config gives the same again")


class Conversation(unittest.TestCase):
    """What a peer that is asked and told hears."""

    def test_what_is_outside_is_as_bad_as_the_worst(self) -> None:
        peer = Fixed([(0,), (9,), (1,)])
        converse(peer, Session(table([4.0, 2.0]), budget=2, seed=0), patience=5)
        self.assertEqual(peer.heard[1], ((9,), Kind.OUTSIDE, math.log(4.0)))

    def test_after_so_many_misses_a_config_is_drawn_and_charged(self) -> None:
        peer = Fixed([(0,)])
        session = Session(table([4.0, 5.0, 6.0, 7.0]), budget=3, seed=0, has_noise=True)
        converse(peer, session, patience=4)
        self.assertEqual((session.probes, session.drawn, session.repeats), (3, 2, 8))
        self.assertEqual(len(peer.informed), 2)
        self.assertNotIn((0,), peer.informed)

    def test_the_same_seed_draws_the_same(self) -> None:
        def drawn(seed: int) -> list[Config]:
            peer = Fixed([(0,)])
            times = [9.0 + at for at in range(50)]
            converse(peer, Session(table(list(times)), budget=20, seed=seed, has_noise=True), patience=1)
            return peer.informed

        self.assertEqual(drawn(3), drawn(3))
        self.assertNotEqual(drawn(3), drawn(4))


class Tables(unittest.TestCase):
    """What a table's text becomes."""

    def test_columns_up_to_status_are_parameters_in_their_best_form(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            text = "batch,gpu,status,value,value_std\n16,v100,ok,20,2\n8,k80,ok,10,\n128,k80,oom_fail,,\n"
            (path / "some.csv").write_text(text)
            (path / "manifest.json").write_text('{"some": {"direction": "max", "kinds": {"gpu": "categorical"}}}')
            self.assertEqual(recorded.names(path, []), ["some"])
            self.assertEqual(recorded.names(path, ["other"]), [])
            some = recorded.load(path, "some")
        batch, gpu = some.parameters
        self.assertEqual((batch.settings, batch.is_ordinal), (("8", "16", "128"), True))
        self.assertEqual((gpu.settings, gpu.is_ordinal), (("k80", "v100"), False))
        self.assertIsNone(some.rows[(2, 0)])
        fast, slow = some.rows[(1, 1)], some.rows[(0, 0)]
        assert fast is not None and slow is not None
        self.assertAlmostEqual(some.regret(slow.log_time), 0.5)
        self.assertAlmostEqual(fast.log_std, 0.1)
        self.assertTrue(some.has_failures)


if __name__ == "__main__":
    unittest.main()
