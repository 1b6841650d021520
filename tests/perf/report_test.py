#!/usr/bin/python3
"""report: what its page holds, and what it refuses.

    report_test.py PATH-OF-REPORT
"""

import importlib.machinery
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

SCRIPT = sys.argv.pop(1)


def load():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("report", SCRIPT)
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("report", loader))
    loader.exec_module(module)
    return module


def document(program, results, **options):
    return {"schema": 1, "program": program, "version": "0.1.0",
            "options": options, "results": results}


class Report(unittest.TestCase):
    def run_on(self, *documents):
        """Exit code, stderr and page of the script."""
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for i, one in enumerate(documents):
                paths.append(os.path.join(folder, f"{i}.json"))
                with open(paths[-1], "w", encoding="utf-8") as file:
                    file.write(one if isinstance(one, str)
                               else json.dumps(one))
            page = os.path.join(folder, "page.html")
            done = subprocess.run([SCRIPT, "-o", page, *paths], text=True,
                                  capture_output=True, check=False)
            if not os.path.exists(page):
                return done.returncode, done.stderr, None
            with open(page, encoding="utf-8") as file:
                return done.returncode, done.stderr, file.read()

    def test_chart(self):
        steps = [{"step": i, "loss": 5.0 / i, "held_out": None}
                 for i in range(1, 5)]
        code, _, page = self.run_on(document("train_moe", steps))
        self.assertEqual(code, 0)
        svg = xml.fromstring(re.search("<svg.*?</svg>", page, re.S).group())
        lines = svg.findall("{http://www.w3.org/2000/svg}polyline")
        self.assertEqual(len(lines), 1)  # held_out has no numbers
        points = [tuple(map(float, p.split(",")))
                  for p in lines[0].get("points").split()]
        self.assertEqual(len(points), 4)
        self.assertEqual([p[0] for p in points],
                         sorted({p[0] for p in points}))
        self.assertEqual([p[1] for p in points],  # downwards is larger
                         sorted({p[1] for p in points}))

    def test_stacks(self):
        """Parts lie one behind the other, as long as they are large."""
        rows = [{"bar": "a<", "compute": 2, "dispatch": 1, "combine": 1},
                {"bar": "b", "compute": 1, "dispatch": 0, "combine": 0.5},
                {"bar": "c", "compute": None, "dispatch": 0, "combine": 1}]
        code, _, page = self.run_on(document("training_figure8", rows))
        self.assertEqual(code, 0)
        svg = xml.fromstring(re.search("<svg.*?</svg>", page, re.S).group())
        boxes = [box for box in svg.iter("{http://www.w3.org/2000/svg}rect")
                 if box.get("width") != "12"]
        self.assertEqual(len(boxes), 6)  # c has no number
        widths = [float(box.get("width")) for box in boxes]
        for width, part in zip(widths, (2, 1, 1, 1, 0, 0.5)):
            self.assertAlmostEqual(width / widths[0], part / 2, places=2)
        self.assertAlmostEqual(
            float(boxes[1].get("x")), float(boxes[0].get("x")) + widths[0],
            delta=0.11)
        self.assertEqual({box.get("y") for box in boxes[:3]},
                         {boxes[0].get("y")})

    def test_lines_of_ways(self):
        rows = [{"retain": r, "way": w, "cpu_ms": r * 2}
                for r in (1, 0.5) for w in ("lrm", "grad2")]
        lines = load().lines_of(document("select_perf", rows))
        self.assertEqual(lines, {"lrm": [(0.5, 1.0), (1, 2)],
                                 "grad2": [(0.5, 1.0), (1, 2)]})

    def test_alone(self):
        """Text of files is text; nothing is fetched."""
        evil = "<script>alert(1)</script>"
        code, _, page = self.run_on(
            document("x", [{"a" + evil: evil}], text=evil))
        self.assertEqual(code, 0)
        self.assertNotIn("<script", page)
        self.assertIn("&lt;script&gt;", page)
        self.assertNotRegex(page, "(src|href)=")

    def test_ratio(self):
        shape = {"ranks": 4, "experts": 32, "topk": 4, "hidden": 512,
                 "ffn": 256, "dtype": "fp32"}
        peer = document("peer_torch", [
            {"way": "masked", "tokens": 512, "retain": 0.7, "time_ms": 30,
             "cpu_ms": 12}], tokens=512, **shape)
        ours = document("moe_backward_perf", [
            {"tokens": 512, "retention": 0.7004, "dedup_ms": 10,
             "critical_cpu_ms_dedup": 3}], minbytes=512, **shape)
        rows = load().ratios([ours, peer])
        self.assertEqual([(r["ratio"], r["cpu_ratio"]) for r in rows],
                         [(3, 4)])
        ours["options"]["dtype"] = "bf16"
        self.assertEqual(load().ratios([ours, peer]), [])

    def test_refused(self):
        for bad, why in (("{", "0.json"), ("[]", "schema 1"),
                         ('{"schema": 2}', "schema 1"),
                         ('{"schema": 1, "program": "x"}', '"version"')):
            code, error, page = self.run_on(bad)
            self.assertEqual(code, 1)
            self.assertIn(why, error)
            self.assertIsNone(page)
        done = subprocess.run([SCRIPT], capture_output=True, check=False)
        self.assertEqual(done.returncode, 1)


if __name__ == "__main__":
    unittest.main()
