#!/usr/bin/python3
"""The paper's Figure 5 and Table 2 by real training (train_moe).

The paper trains models on that are trained already.  So does this: per seed a
run keeps all pairs (C0); where it is two thirds through, its checkpoint is where
the others begin, on the same batches: C10, C20 and C30, which keep 90, 80 and
70 % of the pairs by LRM, and, at 80 %, the other ways to select.

  Figure 5  perplexity of training from there on, mean of the seeds
  Table 2   mean over the updates of |perplexity - that of C0| in training, and
            the held-out perplexity at the end less that of C0, both as mean of
            the seeds with the least and the most

Writes figure5.svg and training.json (perf/report draws it too) to FOLDER, where
each run's own JSON is kept: a run that is there already is not made again.

Exit codes: 0 good, 1 bad options or a run that failed.
"""

import argparse
import importlib.machinery
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
# Name, select, retention; the first is what the others are compared with.
RUNS = [("C0", "all", 0.8), ("C10", "lrm", 0.9), ("C20", "lrm", 0.8),
        ("C30", "lrm", 0.7), ("grad2", "grad2", 0.8), ("grad1", "grad1", 0.8),
        ("random", "random", 0.8)]
FIGURE5 = {"C0": 1.015190, "C10": 1.015156, "C20": 1.015141, "C30": 1.016270}
TABLE2 = {"C20": 0.012474, "grad2": 0.097654, "grad1": 0.107485,
          "random": 0.775797}
MODEL = ["--dim", "64", "--layers", "2", "--heads", "4", "--experts", "16",
         "--topk", "4", "--ffn", "64", "--context", "64", "--grams", "4",
         "--gram-rows", "16384", "--lr", "3e-3", "--warmup", "40"]
FULL = {"seeds": 3, "steps": 1500, "batch": 16, "every": 20, "windows": 512}
QUICK = {"seeds": 1, "steps": 60, "batch": 8, "every": 5, "windows": 32}


class Parser(argparse.ArgumentParser):
    """Bad options end with 1, as in all programs here."""

    def error(self, message):
        self.exit(1, f"{self.prog}: {message}\n")


def read_options():
    parser = Parser(prog="training.py",
                    description="The paper's Figure 5 and Table 2 by training.")
    parser.add_argument("folder", metavar="FOLDER", help="where results go")
    parser.add_argument("--quick", action="store_true",
                        help="minutes: shows the machinery, proves no order")
    parser.add_argument("-g", "--ranks", type=int, default=2, metavar="N",
                        help="ranks: processes of this machine (2)")
    parser.add_argument("--program", metavar="PATH",
                        default=os.path.join(HERE, "../../build/perf/train_moe"),
                        help="train_moe (of build/)")
    parser.add_argument("--text", metavar="PATH",
                        help="what to train on; unset: Debian's fortunes")
    return parser.parse_args()


def command(options, size, seed, run, checkpoint):
    name, select, retain = run
    begin = size["steps"] * 2 // 3
    words = [options.program, "-g", str(options.ranks), *MODEL,
             "-n", str(size["steps"]), "--exact", str(begin),
             "--batch", str(size["batch"]), "--seed", str(seed),
             "--select", select, "--retain", str(retain),
             "--report-every", str(size["every"]), "--held-out-every", "0",
             "--held-out-windows", str(size["windows"]),
             "--checkpoint", checkpoint, "--checkpoint-every", str(begin),
             "-J", os.path.join(options.folder, f"{seed}-{name}.json")]
    if options.text:
        words += ["--text", options.text]
    return words + ([] if name == "C0" else ["--resume"])


def branch(base, step, folder):
    """A folder of checkpoints that ends at `step` of base's."""
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for entry in os.listdir(base):
        if entry.endswith(f"{step:012d}"):
            shutil.copytree(os.path.join(base, entry),
                            os.path.join(folder, entry))


def train(options, size, seed):
    """Makes the runs of a seed that are not there."""
    base = os.path.join(options.folder, f"base-{seed}")
    other = os.path.join(options.folder, f"branch-{seed}")
    wanted = [run for run in RUNS if not os.path.exists(
        os.path.join(options.folder, f"{seed}-{run[0]}.json"))]
    if not wanted:
        return
    if wanted[0] != RUNS[0] and not os.path.isdir(base):
        wanted.insert(0, RUNS[0])
    for run in wanted:
        print(f"# seed {seed}: {run[0]}", flush=True)
        if run[0] == "C0":
            shutil.rmtree(base, ignore_errors=True)
        else:
            branch(base, size["steps"] * 2 // 3, other)
        subprocess.run(
            command(options, size, seed, run, base if run[0] == "C0" else other),
            check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(base, ignore_errors=True)
    shutil.rmtree(other, ignore_errors=True)


def read(options, size, seed, name):
    """Training perplexity by step from the branch on; the held-out one."""
    path = os.path.join(options.folder, f"{seed}-{name}.json")
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["results"]
    begin = size["steps"] * 2 // 3
    curve = {row["step"]: math.exp(row["loss"]) for row in rows
             if "loss" in row and row["step"] > begin}
    return curve, rows[-1]["held_out_ppl"]


def mean(values):
    return sum(values) / len(values)


def summarise(options, size):
    seeds = range(1, size["seeds"] + 1)
    got = {name: [read(options, size, seed, name) for seed in seeds]
           for name, _, _ in RUNS}
    rows = []
    for name in FIGURE5:
        for step in sorted(got[name][0][0]):
            rows.append({"setting": name, "step": step, "perplexity":
                         mean([curve[step] for curve, _ in got[name]])})
    for name, select, retain in RUNS:
        moved = [mean([abs(curve[step] - base[step]) for step in base])
                 for (curve, _), (base, _) in zip(got[name], got["C0"])]
        worse = [held - base for (_, held), (_, base)
                 in zip(got[name], got["C0"])]
        rows.append({
            "run": name, "select": select,
            "retain": 1 if select == "all" else retain, "seeds": len(moved),
            "dppl_training": mean(moved), "dppl_training_least": min(moved),
            "dppl_training_most": max(moved), "dppl_held_out": mean(worse),
            "dppl_held_out_least": min(worse),
            "dppl_held_out_most": max(worse),
            "held_out_ppl": mean([held for _, held in got[name]]),
            "held_out_percent": 100 * mean(
                [held / base - 1 for (_, held), (_, base)
                 in zip(got[name], got["C0"])]),
            "paper_table2": TABLE2.get(name),
            "paper_percent": 100 * (FIGURE5[name] / FIGURE5["C0"] - 1)
            if name in FIGURE5 else None})
    return rows


def draw(rows):
    """Figure 5, by perf/report's chart."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader(
        "report", os.path.join(HERE, "../report"))
    report = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("report", loader))
    loader.exec_module(report)
    return report.chart({"program": "training", "results": rows})


def show(rows, is_quick):
    print("#    run  dPPL training (least, most)   dPPL held out (least, most)"
          "   held-out %  paper's Table 2, Figure 5 %")
    for row in rows:
        if "run" not in row:
            continue
        table, percent = (f"{row[key]:.4f}" if row[key] is not None else "-"
                          for key in ("paper_table2", "paper_percent"))
        print(f"{row['run']:>8}  {row['dppl_training']:.4f} "
              f"({row['dppl_training_least']:.4f}, "
              f"{row['dppl_training_most']:.4f})   {row['dppl_held_out']:+.4f} "
              f"({row['dppl_held_out_least']:+.4f}, "
              f"{row['dppl_held_out_most']:+.4f})   "
              f"{row['held_out_percent']:+.3f}   {table}  {percent}")
    if is_quick:
        print("# --quick: a model that has learned next to nothing, one seed: "
              "this proves no order")


def main():
    options = read_options()
    size = QUICK if options.quick else FULL
    os.makedirs(options.folder, exist_ok=True)
    try:
        for seed in range(1, size["seeds"] + 1):
            train(options, size, seed)
        rows = summarise(options, size)
    except (OSError, ValueError, KeyError,
            subprocess.CalledProcessError) as error:
        print(f"training.py: {error}", file=sys.stderr)
        return 1
    document = {"schema": 1, "program": "training", "version": "0.1.0",
                "options": {"quick": options.quick, "ranks": options.ranks,
                            "text": options.text, **size}, "results": rows}
    with open(os.path.join(options.folder, "training.json"), "w",
              encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    with open(os.path.join(options.folder, "figure5.svg"), "w",
              encoding="utf-8") as file:
        file.write(draw(rows) + "\n")
    show(rows, options.quick)
    return 0


if __name__ == "__main__":
    sys.exit(main())
