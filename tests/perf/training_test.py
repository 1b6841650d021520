#!/usr/bin/python3
"""training.py: which runs it makes, where they begin, and what it works out;
train_moe is played by a script whose losses are known.

    training_test.py PATH-OF-TRAINING
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = sys.argv.pop(1)

# Adds its arguments to calls.json beside it.  Perplexity in training is 5, and
# in held-out text 6, plus what the way to select adds.
FAKE = """#!/usr/bin/python3
import json, math, os, sys
words = sys.argv[1:]
get = lambda name: words[words.index(name) + 1]
more = {"all": 0, "lrm": 0.1, "grad2": 0.2, "grad1": -0.3, "random": 0.4}
steps, exact = int(get("-n")), int(get("--exact"))
folder = get("--checkpoint")
os.makedirs(folder, exist_ok=True)
found = sorted(os.listdir(folder))
if "--resume" in words:
    assert found == [f"step_{exact:012d}"], found
else:
    assert not found, found
    for step in exact, steps:
        os.mkdir(f"{folder}/step_{step:012d}")
add = more[get("--select")]
rows = [{"step": s, "loss": math.log(5 + (add if s > exact else 9))}
        for s in range(5, steps + 1, 5)]
rows.append({"row": "end", "held_out_ppl": 6 + 2 * add})
with open(get("-J"), "w") as file:
    json.dump({"schema": 1, "program": "train_moe", "version": "0",
               "options": {}, "results": rows}, file)
with open(os.path.dirname(os.path.abspath(__file__)) + "/calls", "a") as file:
    file.write(get("--select") + " " + get("--retain") + "\\n")
"""


class Training(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.program = os.path.join(self.folder.name, "fake")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(FAKE)
        os.chmod(self.program, 0o755)
        self.out = os.path.join(self.folder.name, "out")

    def tearDown(self):
        self.folder.cleanup()

    def run_script(self, *more):
        return subprocess.run(
            [SCRIPT, self.out, "--program", self.program, *more], text=True,
            capture_output=True, check=False)

    def calls(self):
        with open(os.path.join(self.folder.name, "calls"),
                  encoding="utf-8") as file:
            return file.read().splitlines()

    def test_numbers(self):
        done = self.run_script("--quick")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("proves no order", done.stdout)
        self.assertEqual(self.calls(), [
            "all 0.8", "lrm 0.9", "lrm 0.8", "lrm 0.7", "grad2 0.8",
            "grad1 0.8", "random 0.8"])
        with open(os.path.join(self.out, "training.json"),
                  encoding="utf-8") as file:
            rows = json.load(file)["results"]
        runs = {row["run"]: row for row in rows if "run" in row}
        for name, add in (("C0", 0), ("C20", 0.1), ("grad1", -0.3),
                          ("random", 0.4)):
            row = runs[name]
            self.assertTrue(math.isclose(row["dppl_training"], abs(add),
                                         abs_tol=1e-9))
            self.assertTrue(math.isclose(row["dppl_held_out"], 2 * add,
                                         abs_tol=1e-9))
        figure = [row for row in rows if "setting" in row]
        self.assertEqual({row["setting"] for row in figure},
                         {"C0", "C10", "C20", "C30"})
        self.assertEqual({row["step"] for row in figure},
                         {45, 50, 55, 60})  # where pairs are dropped
        with open(os.path.join(self.out, "figure5.svg"),
                  encoding="utf-8") as file:
            self.assertEqual(file.read().count("<polyline"), 4)

    def test_three_seeds(self):
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.calls()), 21)
        self.assertNotIn("proves no order", done.stdout)
        os.remove(os.path.join(self.out, "2-random.json"))
        self.assertEqual(self.run_script().returncode, 0)
        # What is there stays; the checkpoint of the missing one is made anew.
        self.assertEqual(self.calls()[21:], ["all 0.8", "random 0.8"])

    def test_failures(self):
        with open(self.program, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 3\n")
        done = self.run_script("--quick")
        self.assertEqual(done.returncode, 1)
        self.assertIn("exit status 3", done.stderr)
        self.assertEqual(subprocess.run([SCRIPT], capture_output=True,
                                        check=False).returncode, 1)


if __name__ == "__main__":
    unittest.main()
