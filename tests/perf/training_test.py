#!/usr/bin/python3
"""training.py: which runs it makes, where they begin, and what it works out;
train_moe is played by a script whose losses and costs are known.

    training_test.py PATH-OF-TRAINING
"""

import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

SCRIPT = sys.argv.pop(1)

# Adds its arguments to calls beside it.  Perplexity in training is 5, and in
# held-out text 6, plus what the way to select adds; where a policy is given,
# the loss is 1 / update, and 0.005 more for ours.  There each phase takes 1 ms,
# of ours half of that, and a round 1,250 bytes.
FAKE = """#!/usr/bin/python3
import json, math, os, sys
words = sys.argv[1:]
get = lambda name, other=None: (words[words.index(name) + 1]
                                if name in words else other)
more = {"all": 0, "lrm": 0.1, "grad2": 0.2, "grad1": -0.3, "random": 0.4}
steps, exact = int(get("-n")), int(get("--exact"))
last, policy = int(get("--last", steps)), get("--policy")
ours = policy == "lrmoe"
folder = get("--checkpoint")
os.makedirs(folder, exist_ok=True)
found = sorted(os.listdir(folder))
if "--resume" in words:
    assert found, folder
    first = int(found[-1][5:])
    assert policy or found == [f"step_{exact:012d}"], found
else:
    assert not found, found
    first = 0
    os.makedirs(f"{folder}/step_{exact:012d}")
os.makedirs(f"{folder}/step_{last:012d}", exist_ok=True)
add = more[get("--select")]
every = int(get("--report-every"))
rows = []
for s in range(first + every, last + 1, every):
    rows.append({"step": s,
                 "loss": math.log(5 + (add if s > exact else 9))})
    if policy:
        rows[-1]["loss"] = 1 / s + (0.005 if ours else 0)
    for key in PHASES:
        rows[-1][key] = 0.5 if ours else 1
    for key in WIRE:
        rows[-1][key] = 1250
    rows[-1]["imbalance"] = rows[-1]["imbalance_forward"] = 1 if ours else 2
rows.append({"row": "end", "held_out_ppl": 6 + 2 * add})
with open(get("-J"), "w") as file:
    json.dump({"schema": 1, "program": "train_moe", "version": "0",
               "options": {}, "results": rows}, file)
with open(os.path.dirname(os.path.abspath(__file__)) + "/calls", "a") as file:
    file.write(" ".join([policy or "", get("--select"), get("--retain"),
                         str(last)]) + "\\n")
"""
WAYS = ["fixed all 1", "proportional all 1", "quota all 1", "lrmoe lrm 0.7",
        "lrmoe lrm 0.8"]
TURNS = ["fixed all 1 30"] + [f"{way} {last}" for last in (40, 50)
                              for way in WAYS]


def load():
    """policies.py, which training.py uses."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, os.path.dirname(SCRIPT))
    return importlib.import_module("policies")


class Training(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.program = os.path.join(self.folder.name, "fake")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(FAKE.replace(
                "PHASES", repr(POLICIES.FORWARD + POLICIES.BACKWARD)
            ).replace("WIRE", repr(POLICIES.WIRE)))
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
            f" {run} 60" for run in (
                "all 0.8", "lrm 0.9", "lrm 0.8", "lrm 0.7", "grad2 0.8",
                "grad1 0.8", "random 0.8")]
            + TURNS)
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
        self.assertEqual(len(self.calls()), 21 + 1 + 5 * 4)
        self.assertNotIn("proves no order", done.stdout)
        os.remove(os.path.join(self.out, "2-random.json"))
        self.assertEqual(self.run_script().returncode, 0)
        # What is there stays; the checkpoint of the missing one is made anew.
        self.assertEqual(self.calls()[42:], [" all 0.8 1500",
                                             " random 0.8 1500"])

    def results(self, name):
        with open(os.path.join(self.out, name), encoding="utf-8") as file:
            return json.load(file)

    def test_policies(self):
        done = self.run_script("--quick", "--link", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        document = self.results("table1.json")
        self.assertEqual(document["options"]["link_gbit"], 1)
        rows = {(row["target"], row["policy"]): row
                for row in document["results"]}
        self.assertEqual(len(rows), 10)
        # 20 updates, smoothed over 4: at half of them, 37 to 40; ours, 0.005
        # above, gets there at the end, and never to the other.
        fixed = rows["1/2", "fixed"]
        target = sum(1 / step for step in range(37, 41)) / 4
        self.assertAlmostEqual(fixed["loss"], target)
        self.assertEqual(fixed["step"], 40)
        # 8 phases of 1 ms and 7 rounds of 1,250 bytes, 0.01 ms each.
        self.assertAlmostEqual(fixed["moe_s"], 10 * 8.07 / 1e3)
        self.assertAlmostEqual(fixed["wire_s"], 10 * 0.07 / 1e3)
        self.assertEqual(rows["9/10", "fixed"]["step"], 48)
        self.assertEqual(fixed["imbalance_forward"], 2)
        self.assertAlmostEqual(rows["1/2", "quota"]["of_fixed"], 1)
        self.assertEqual(rows["1/2", "C30"]["step"], 50)
        self.assertAlmostEqual(rows["1/2", "C30"]["of_fixed"],
                               20 * 4.07 / 80.7)
        self.assertIsNone(rows["9/10", "C30"]["step"])
        self.assertIsNone(rows["9/10", "C30"]["of_fixed"])
        self.assertAlmostEqual(rows["1/2", "C30"]["update_ms"], 4.07)
        self.assertAlmostEqual(rows["1/2", "C30"]["paper_of_megatron"],
                               28.0 / 50.1)
        bars = {row["bar"]: row
                for row in self.results("figure8.json")["results"]}
        self.assertEqual(len(bars), 9)
        ours = bars["C30"]  # its 0.5 ms are of two layers
        self.assertAlmostEqual(ours["compute_ms"], 0.25)
        self.assertAlmostEqual(ours["dispatch_ms"], 0.25 + 0.01)
        self.assertAlmostEqual(ours["combine_ms"], 0.25 + 0.005)
        self.assertAlmostEqual(ours["of_fixed"], 0.765 / 1.515)
        self.assertAlmostEqual(bars["paper: Ours"]["of_fixed"], 12.69 / 29.64)
        with open(os.path.join(self.out, "figure8.svg"),
                  encoding="utf-8") as file:
            self.assertEqual(file.read().count("<rect"), 9 * 3 + 3)
        os.remove(os.path.join(self.out, "policy-quota-50.json"))
        self.assertEqual(self.run_script("--quick").returncode, 0)
        self.assertEqual(self.calls()[18:], TURNS)

    def test_model(self):
        self.assertEqual(POLICIES.smooth([3, 1, 2], 2), [None, 2, 1.5])
        self.assertEqual(POLICIES.first_at([None, 3, 1, 2], 2), 2)
        self.assertIsNone(POLICIES.first_at([None, 3], 2))
        row = dict.fromkeys(POLICIES.WIRE, 0)
        row["wire_combine_bytes"] = 1250000
        self.assertAlmostEqual(
            POLICIES.wire_ms(row, POLICIES.WIRE, 10), 1)
        for system, bars in POLICIES.FIGURE8.items():
            self.assertAlmostEqual(
                sum(bars), {"Megatron-LM": 29.64, "SYMI": 30.11,
                            "UltraEP": 16.41, "Ours": 12.69}[system])

    def test_turns(self):
        """A way whose files miss an update, or have one twice, is refused."""
        self.assertEqual(self.run_script("--quick").returncode, 0)
        path = os.path.join(self.out, "policy-C20-40.json")
        document = self.results("policy-C20-40.json")
        for rows in (document["results"][1:],
                     document["results"][:1] + document["results"]):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({**document, "results": rows}, file)
            done = self.run_script("--quick")
            self.assertEqual(done.returncode, 1)
            self.assertIn("C20", done.stderr)

    def test_failures(self):
        with open(self.program, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\nexit 3\n")
        done = self.run_script("--quick")
        self.assertEqual(done.returncode, 1)
        self.assertIn("exit status 3", done.stderr)
        self.assertEqual(subprocess.run([SCRIPT], capture_output=True,
                                        check=False).returncode, 1)
        for link in ("0", "-1", "nan", "x"):
            self.assertEqual(self.run_script("--link", link).returncode, 1)


POLICIES = load()

if __name__ == "__main__":
    unittest.main()
