"""The package against the program's own output, with and without pandas (--without-pandas), and
tables of changes that add up on random pairs: a few, with DISTSIM_TEST_ALL=1 200."""

import json
import os
import random
import subprocess
import sys
import unittest

if "--without-pandas" in sys.argv:
    sys.argv.remove("--without-pandas")
    sys.modules["pandas"] = None
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools", "python"))
os.chdir(ROOT)
import distsim  # noqa: E402

TOUR = "scenarios/tour.dir"


rows = distsim.records


class Package(unittest.TestCase):
    def test_tables_are_what_is_installed(self):
        table = distsim.what_if(TOUR, "compute * 2")
        self.assertEqual(type(table).__name__, "list" if distsim.pandas is None else "DataFrame")

    def test_a_run_is_its_json(self):
        code, out, _ = distsim.call("run", TOUR, "--set", "tp=8", "--set", "dp=1", "--json")
        said = json.loads(out)
        run = distsim.run(TOUR, tp=8, dp=1)
        self.assertEqual(code, 0)
        self.assertEqual(run.json, said)
        self.assertEqual(run.step_time_ps, said["step_time_ps"])
        self.assertAlmostEqual(run.step_time, said["step_time_ps"] * 1e-12, delta=1e-15)
        self.assertIn("mfu", dir(run))
        self.assertIn(f"step {run.step_time:.6g} s", repr(run))
        with self.assertRaisesRegex(AttributeError, "a run has no 'speed'"):
            _ = run.speed

    def test_the_timeline_ends_with_the_step(self):
        run = distsim.run(TOUR)
        tasks = rows(run.timeline())
        self.assertEqual(max(t["end_ps"] for t in tasks), run.step_time_ps)
        segments = rows(run.critical_path())
        self.assertEqual(sum(s["end_ps"] - s["start_ps"] for s in segments), run.step_time_ps)
        self.assertIn("traceEvents", run.trace())

    def test_dotted_keys_and_lists(self):
        once = distsim.run(TOUR, strategy__zero=1, without=["launch", "host"])
        self.assertEqual(once.strategy["zero"], 1)
        self.assertLess(once.step_time, distsim.run(TOUR, strategy__zero=1).step_time)

    def test_errors_have_the_diagnostics(self):
        with self.assertRaisesRegex(distsim.Error, "did you mean 'zero'"):
            distsim.run(TOUR, zreo=1)
        with self.assertRaises(distsim.Error) as caught:
            distsim.run("no such file.dir")
        self.assertEqual(caught.exception.exit_code, 1)

    def test_what_does_not_fit_is_a_result(self):
        run = distsim.run("scenarios/out-of-memory.dir")
        self.assertFalse(run.fits)
        self.assertIn("does not fit", repr(run))

    def test_a_sweep_has_a_row_a_candidate(self):
        table = rows(distsim.sweep(TOUR, vary={"tp": [1, 2, 4, 8], "dp": [1, 2, 4, 8]},
                                   where=["dp * tp == 8"]))
        self.assertEqual(sorted(r["tp"] for r in table), [1, 2, 4, 8])
        for row in table:
            run = distsim.run(TOUR, {"cost": "fitted"}, tp=row["tp"], dp=row["dp"])
            self.assertEqual(row["step_time_ps"], run.step_time_ps)

    def test_a_comparison_adds_up(self):
        both = distsim.compare(TOUR, {"overlap": "off"})
        self.assertEqual(sum(r["difference_ps"] for r in rows(both["time"])),
                         both["step_time_difference_ps"])
        other = distsim.compare(TOUR, "scenarios/distir-mlp.dir")
        self.assertEqual(other["step_time_difference_ps"],
                         distsim.run("scenarios/distir-mlp.dir").step_time_ps - distsim.run(TOUR).step_time_ps)

    def test_a_report_is_a_page(self):
        self.assertIn("<iframe srcdoc=", distsim.run(TOUR)._repr_html_())


class Lesson(unittest.TestCase):
    def test_the_bubble_is_as_the_formula_says(self):
        out = subprocess.run([sys.executable, "tools/python/lesson.py"], check=True,
                             stdout=subprocess.PIPE).stdout.decode()
        lines = out.splitlines()
        for line in lines[1:3]:
            m, idle, formula = [float(word) for word in line.split() if word != "%"]
            self.assertAlmostEqual(formula, 100 * 7 / (m + 7), delta=0.05)
            self.assertAlmostEqual(idle, formula, delta=1)
        waits = [float(line.split()[2]) for line in lines if line.startswith("without waits")]
        self.assertLess(waits[0], -1)


class Figures(unittest.TestCase):
    CHEAP = ["zero-bubble-rate", "dualpipe-bubble", "interleaving-bubble", "allreduce-h200"]
    MORE = ["zero-bubble-memory", "zero-memory", "seqsel-memory", "megatron-tp-2020"]

    def test_tables_are_what_distsim_says(self):
        names = self.CHEAP + (self.MORE if os.environ.get("DISTSIM_TEST_ALL") else [])
        subprocess.run([sys.executable, "tools/python/figures.py", "--check"] + names, check=True)


FILES = [TOUR, "scenarios/distir-mlp.dir", "scenarios/pipeline-2x4.dir", "scenarios/mlp-training.dir",
         "scenarios/gpt3-layer-tp8.dir", "scenarios/mixed-box-dp.dir"]
RATES = ["compute", "memory", "latency", "host", "link"]
TERMS = ["interference", "host", "launch", "bandwidth", "transfers", "waits", "overlap", "curves"]


class Changes(unittest.TestCase):
    """Of two random machines: the table leads from one to the other, to the picosecond."""

    def check(self, table, before, after):
        step = before
        for row in table:
            self.assertEqual(row["before_ps"], step)
            self.assertEqual(row["difference_ps"], row["after_ps"] - row["before_ps"])
            step = row["after_ps"]
        self.assertEqual(step, after)
        self.assertEqual(sum(row["difference_ps"] for row in table), after - before)

    def test_random_pairs(self):
        draw = random.Random(7)
        for i in range(200 if os.environ.get("DISTSIM_TEST_ALL") else 8):
            file = draw.choice(FILES)
            before = distsim.run(file).step_time_ps
            if i % 2:
                changes = [f"{draw.choice(RATES)} * {draw.choice([0.25, 0.9, 1.01, 3])}"
                           for _ in range(draw.randint(1, 4))]
                after = distsim.run(file, what_if=changes).step_time_ps
                self.check(rows(distsim.what_if(file, *changes)), before, after)
            else:
                terms = draw.sample(TERMS, draw.randint(1, 4))
                after = distsim.run(file, without=terms).step_time_ps
                self.check(rows(distsim.ladder(file, terms)), before, after)

    def test_sensitivities_of_scenarios(self):
        seen = 0
        for file in FILES:
            for row in rows(distsim.sensitivity(file)):
                if row["critical_path"] != "the same":
                    continue
                seen += row["simulated_ps"] != 0
                self.assertLessEqual(abs(row["by_path_ps"] - row["simulated_ps"]) * 10,
                                     abs(row["simulated_ps"]), (file, row))
        self.assertGreaterEqual(seen, 5)


if __name__ == "__main__":
    unittest.main()
