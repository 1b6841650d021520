#!/usr/bin/python3
"""The paper's Figures 5 and 8 and Tables 1 and 2 by real training (train_moe).

The paper trains models on that are trained already.  So does this: per seed a
run keeps all pairs (C0); where it is two thirds through, its checkpoint is where
the others begin, on the same batches: C10, C20 and C30, which keep 90, 80 and
70 % of the pairs by LRM, and, at 80 %, the other ways to select.

  Figure 5  perplexity of training from there on, mean of the seeds
  Table 2   mean over the updates of |perplexity - that of C0| in training, and
            the held-out perplexity at the end less that of C0, both as mean of
            the seeds with the least and the most

Table 1 and Figure 8 compare ways to place experts: policies.py says how.

Writes figure5.svg and figure8.svg, training.json, table1.json and figure8.json
(perf/report draws them too) to FOLDER, where each run's own JSON is kept: a run
that is there already is not made again.

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

sys.dont_write_bytecode = True
import policies
import runs

# Name, select, retention; the first is what the others are compared with.
RUNS = [("C0", "all", 0.8), ("C10", "lrm", 0.9), ("C20", "lrm", 0.8),
        ("C30", "lrm", 0.7), ("grad2", "grad2", 0.8), ("grad1", "grad1", 0.8),
        ("random", "random", 0.8)]
FULL = {"seeds": 3, "steps": 1500, "begin": 1000, "batch": 16, "every": 20,
        "windows": 512}
QUICK = {"seeds": 1, "steps": 60, "begin": 40, "batch": 8, "every": 5,
         "windows": 32}
FIGURE5 = {"C0": 1.015190, "C10": 1.015156, "C20": 1.015141, "C30": 1.016270}
TABLE2 = {"C20": 0.012474, "grad2": 0.097654, "grad1": 0.107485,
          "random": 0.775797}


class Parser(argparse.ArgumentParser):
    """Bad options end with 1, as in all programs here."""

    def error(self, message):
        self.exit(1, f"{self.prog}: {message}\n")


def gbit(text):
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError
    return value


def read_options():
    parser = Parser(prog="training.py",
                    description="The paper's Figures 5 and 8 and "
                    "Tables 1 and 2 by training.")
    parser.add_argument("folder", metavar="FOLDER", help="where results go")
    parser.add_argument("--quick", action="store_true",
                        help="minutes: shows the machinery, proves no order")
    parser.add_argument("-g", "--ranks", type=int, default=2, metavar="N",
                        help="ranks of Figure 5 and Table 2: processes of "
                        "this machine (2)")
    parser.add_argument("--link", type=gbit, default=10, metavar="GBIT",
                        help="modelled wire: each rank's link, Gbit/s in each "
                        "direction (10)")
    parser.add_argument("--program", metavar="PATH",
                        default=os.path.join(runs.HERE,
                                             "../../build/perf/train_moe"),
                        help="train_moe (of build/)")
    parser.add_argument("--text", metavar="PATH",
                        help="what to train on; unset: Debian's fortunes")
    return parser.parse_args()


def train_one(options, size, seed, run, checkpoint):
    name, select, retain = run
    runs.run(options, size, [
        "-g", str(options.ranks), "--seed", str(seed), "--select", select,
        "--retain", str(retain), "--report-every", str(size["every"]),
        "--held-out-windows", str(size["windows"]), "--checkpoint", checkpoint,
        "--checkpoint-every", str(size["begin"]),
        "-J", os.path.join(options.folder, f"{seed}-{name}.json"),
        *([] if name == "C0" else ["--resume"])])


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
            runs.branch(base, size["begin"], other)
        train_one(options, size, seed, run, base if run[0] == "C0" else other)
    shutil.rmtree(base, ignore_errors=True)
    shutil.rmtree(other, ignore_errors=True)


def read(options, size, seed, name):
    """Training perplexity by step from the branch on; the held-out one."""
    path = os.path.join(options.folder, f"{seed}-{name}.json")
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["results"]
    begin = size["begin"]
    curve = {row["step"]: math.exp(row["loss"]) for row in rows
             if "loss" in row and row["step"] > begin}
    return curve, rows[-1]["held_out_ppl"]


def summarise(options, size):
    seeds = range(1, size["seeds"] + 1)
    got = {name: [read(options, size, seed, name) for seed in seeds]
           for name, _, _ in RUNS}
    rows = []
    for name in FIGURE5:
        for step in sorted(got[name][0][0]):
            rows.append({"setting": name, "step": step, "perplexity":
                         runs.mean([curve[step] for curve, _ in got[name]])})
    for name, select, retain in RUNS:
        moved = [runs.mean([abs(curve[step] - base[step]) for step in base])
                 for (curve, _), (base, _) in zip(got[name], got["C0"])]
        worse = [held - base for (_, held), (_, base)
                 in zip(got[name], got["C0"])]
        rows.append({
            "run": name, "select": select,
            "retain": 1 if select == "all" else retain, "seeds": len(moved),
            "dppl_training": runs.mean(moved),
            "dppl_training_least": min(moved),
            "dppl_training_most": max(moved), "dppl_held_out": runs.mean(worse),
            "dppl_held_out_least": min(worse),
            "dppl_held_out_most": max(worse),
            "held_out_ppl": runs.mean([held for _, held in got[name]]),
            "held_out_percent": 100 * runs.mean(
                [held / base - 1 for (_, held), (_, base)
                 in zip(got[name], got["C0"])]),
            "paper_table2": TABLE2.get(name),
            "paper_percent": 100 * (FIGURE5[name] / FIGURE5["C0"] - 1)
            if name in FIGURE5 else None})
    return rows


def report():
    """perf/report as a module, for its charts."""
    loader = importlib.machinery.SourceFileLoader(
        "report", os.path.join(runs.HERE, "../report"))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader("report", loader))
    loader.exec_module(module)
    return module


def show(rows):
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


def write(options, name, content):
    with open(os.path.join(options.folder, name), "w",
              encoding="utf-8") as file:
        file.write(content + "\n")


def document(options, program, more, rows):
    made = {"schema": 1, "program": program, "version": "0.1.0",
            "options": {"quick": options.quick, "text": options.text, **more},
            "results": rows}
    return made, json.dumps(made, indent=1)


def finish(options, size, other):
    """What all runs together say: files, and tables for people."""
    rows = summarise(options, size)
    first, eighth = policies.summarise(options, other)
    model = policies.model_of(options, other)
    drawn = report()
    made, content = document(options, "training",
                             {"ranks": options.ranks, **size}, rows)
    write(options, "training.json", content)
    write(options, "figure5.svg", drawn.chart(made))
    write(options, "table1.json",
          document(options, "training_table1", model, first)[1])
    made, content = document(options, "training_figure8", model, eighth)
    write(options, "figure8.json", content)
    write(options, "figure8.svg", drawn.chart(made))
    show(rows)
    policies.show(first, eighth)
    if options.quick:
        print("# --quick: a model that has learned next to nothing, one seed: "
              "this proves no order")


def main():
    options = read_options()
    size = QUICK if options.quick else FULL
    other = policies.QUICK if options.quick else policies.FULL
    os.makedirs(options.folder, exist_ok=True)
    try:
        for seed in range(1, size["seeds"] + 1):
            train(options, size, seed)
        policies.train(options, other)
        finish(options, size, other)
    except (OSError, ValueError, KeyError,
            subprocess.CalledProcessError) as error:
        print(f"training.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
