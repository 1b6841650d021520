"""The paper's Table 1 and Figure 8 by real training: a part of training.py.

A model of its own is trained without an auxiliary loss, on four ranks: a router
that nothing balances loads the fullest rank to 1.8 times the mean or more, and
the paper's numbers are those of 2.0 (Figures 6 and 7).  It is still learning
where the ways begin, from one checkpoint and on the same batches; a loss that
hardly falls any more has its noise for an order.  They take turns of some
updates each, so that a machine that gets slower does so for all, and no way
takes another's losses: each trains.

  fixed         experts at home, all pairs (Megatron-LM)
  proportional  SYMI's rule with as many slots as experts, which is what the
                paper's Figure 7 shows: no expert is left without one, so none
                has a second, and the plan is that of fixed.  With more slots it
                moves homes, and such plans are not executed
  quota         UltraEP's rule, a spare slot per rank, all pairs
  C30, C20      ours: replicas in a spare slot per rank, 70 and 80 % of the
                pairs in backward by LRM

Time of an update is the CPU time of the critical rank (perf/train/cost.h:
found for each block and pass; ranks outnumber cores, so a wall clock would show
the cores) plus a modelled wire: of each round of messages the most bytes that
one rank has to send or to receive, over a full-duplex link per rank.  No
latency, no overlap; weights and gradients of replicas are moved in each update
and count.

  Table 1   that time, summed until the training loss is first as low as a
            target: the smoothed loss of fixed at 1/2 and at 9/10 of the updates
            after that checkpoint (at the end a slower way would have none
            left).  Smoothed: mean of the last fifth of them
  Figure 8  parts of the backward of one layer, mean of the updates: dispatch
            has the selection, dispatch and combine have their wire; what
            replicas cost is left out, as in the paper
"""

import json
import os
import shutil

import runs

ALL = ["--select", "all", "--retain", "1"]
# Name, the paper's name for it, options.
WAYS = [("fixed", "Megatron-LM", ["--policy", "fixed", *ALL]),
        ("proportional", "SYMI",
         ["--policy", "proportional", "--slots", "0", *ALL]),
        ("quota", "UltraEP", ["--policy", "quota", "--slots", "1", *ALL]),
        ("C30", "Ours", ["--policy", "lrmoe", "--slots", "1",
                         "--select", "lrm", "--retain", "0.7"]),
        ("C20", None, ["--policy", "lrmoe", "--slots", "1",
                       "--select", "lrm", "--retain", "0.8"])]
FULL = {"steps": 900, "begin": 400, "batch": 16, "turns": 4}
QUICK = {"steps": 50, "begin": 30, "batch": 8, "turns": 2}
RANKS = 4
SEED = 1
TARGETS = ["1/2", "9/10"]
# Qwen3-30B-A3B: (minutes, update) to each loss; no UltraEP there.
TABLE1 = {"Megatron-LM": [(50.1, 6359), (66.4, 8440)],
          "SYMI": [(48.7, 6359), (64.6, 8440)],
          "Ours": [(28.0, 6630), (36.7, 8693)]}
# Compute, dispatch, combine in ms.
FIGURE8 = {"Megatron-LM": (9.91, 5.19, 14.54), "SYMI": (7.52, 5.26, 17.33),
           "UltraEP": (9.33, 3.61, 3.47), "Ours": (7.26, 2.58, 2.85)}
FORWARD = ("critical_prepare_ms", "critical_dispatch_ms",
           "critical_compute_ms", "critical_combine_ms")
BACKWARD = ("critical_back_dispatch_ms", "critical_back_compute_ms",
            "critical_back_combine_ms", "critical_reduce_ms")
WIRE = ("wire_dispatch_bytes", "wire_combine_bytes", "wire_select_bytes",
        "wire_back_dispatch_bytes", "wire_back_combine_bytes",
        "wire_weights_bytes", "wire_gradients_bytes")
# A rank that waits sleeps at once: waiting takes no CPU time.
ENV = {"LRMOE_SPINS": "0", "LRMOE_YIELDS": "0"}


# ---- Runs --------------------------------------------------------------------


def ends_of(size):
    """Where each turn ends."""
    count = size["steps"] - size["begin"]
    return [size["begin"] + count * (i + 1) // size["turns"]
            for i in range(size["turns"])]


def path_of(options, name, end):
    return os.path.join(options.folder, f"policy-{name}-{end}.json")


def run(options, size, folder, name, end, more):
    """A way from the newest checkpoint of folder to update `end`."""
    print(f"# policies: {name} to update {end}", flush=True)
    runs.run(options, size, [
        "-g", str(RANKS), "--seed", str(SEED), "--auxiliary", "0", *more,
        "--last", str(end), "--report-every", "1", "--held-out-windows", "16",
        "--checkpoint", folder, "--checkpoint-every", str(size["steps"]),
        "-J", path_of(options, name, end)], ENV)


def train(options, size):
    """All ways in turns, unless they are there."""
    if all(os.path.exists(path_of(options, name, end))
           for name, _, _ in WAYS for end in ends_of(size)):
        return
    base = os.path.join(options.folder, "policy-base")
    folders = {name: os.path.join(options.folder, f"policy-{name}")
               for name, _, _ in WAYS}
    shutil.rmtree(base, ignore_errors=True)
    run(options, size, base, "base", size["begin"], WAYS[0][2])
    for folder in folders.values():
        runs.branch(base, size["begin"], folder)
    for end in ends_of(size):
        for name, _, more in WAYS:
            run(options, size, folders[name], name, end, [*more, "--resume"])
    for folder in (base, *folders.values()):
        shutil.rmtree(folder, ignore_errors=True)


def read(options, size, name):
    """The updates of a way, in order."""
    rows = []
    for end in ends_of(size):
        with open(path_of(options, name, end), encoding="utf-8") as file:
            rows += [row for row in json.load(file)["results"]
                     if "loss" in row]
    steps = [row["step"] for row in rows]
    if steps != list(range(size["begin"] + 1, size["steps"] + 1)):
        raise ValueError(f"{name}: its files have not each update once")
    return rows


# ---- Model -------------------------------------------------------------------


def wire_ms(row, keys, gbit):
    return sum(row[key] for key in keys) / (gbit * 1e9 / 8) * 1e3


def update_ms(row, gbit):
    return (sum(row[key] for key in FORWARD + BACKWARD)
            + wire_ms(row, WIRE, gbit))


def smooth(losses, width):
    """Means of the last `width`; None where there are fewer."""
    return [None if i + 1 < width
            else runs.mean(losses[i + 1 - width:i + 1])
            for i in range(len(losses))]


def first_at(curve, target):
    """Place of the first value as low as target, None without one."""
    return next((i for i, value in enumerate(curve)
                 if value is not None and value <= target), None)


def width_of(count):
    return max(count // 5, 1)


def targets_of(losses):
    curve = smooth(losses, width_of(len(losses)))
    return [curve[(len(losses) + 1) // 2 - 1], curve[len(losses) * 9 // 10 - 1]]


# ---- Table 1 -----------------------------------------------------------------


def reach(rows, target, gbit):
    """What it took to the target: update, seconds, of them on the wire."""
    curve = smooth([row["loss"] for row in rows], width_of(len(rows)))
    last = first_at(curve, target)
    if last is None:
        return None, None, None
    took = rows[:last + 1]
    return (took[-1]["step"], sum(update_ms(row, gbit) for row in took) / 1e3,
            sum(wire_ms(row, WIRE, gbit) for row in took) / 1e3)


def over(a, b):
    return a / b if a is not None and b else None


def table1(got, gbit):
    rows = []
    targets = targets_of([row["loss"] for row in got["fixed"]])
    for i, target in enumerate(targets):
        base = reach(got["fixed"], target, gbit)[1]
        for name, system, _ in WAYS:
            step, seconds, wire = reach(got[name], target, gbit)
            paper = TABLE1[system][i] if system in TABLE1 else (None, None)
            rows.append({
                "target": TARGETS[i], "loss": target, "policy": name,
                "step": step, "moe_s": seconds, "wire_s": wire,
                "of_fixed": over(seconds, base),
                "update_ms": runs.mean(
                    [update_ms(row, gbit) for row in got[name]]),
                "imbalance_forward": runs.mean(
                    [row["imbalance_forward"] for row in got[name]]),
                "imbalance_kept": runs.mean(
                    [row["imbalance"] for row in got[name]]),
                "paper": system, "paper_minutes": paper[0],
                "paper_step": paper[1], "paper_of_megatron":
                    over(paper[0], TABLE1["Megatron-LM"][i][0])})
    return rows


# ---- Figure 8 ----------------------------------------------------------------


def parts_of(rows, gbit):
    """ms of a layer's backward: CPU time of compute, dispatch and combine, and
    wire of the last two."""
    def each(value):
        return runs.mean([value(row) for row in rows]) / runs.LAYERS
    return (each(lambda row: row["critical_back_compute_ms"]),
            each(lambda row: row["critical_back_dispatch_ms"]),
            each(lambda row: row["critical_back_combine_ms"]),
            each(lambda row: wire_ms(
                row, ("wire_select_bytes", "wire_back_dispatch_bytes"), gbit)),
            each(lambda row: wire_ms(
                row, ("wire_back_combine_bytes",), gbit)))


def bar(name, parts, wire, whole):
    """A row: ms, and shares of `whole`, which are what is drawn."""
    compute, dispatch, combine = parts
    total = compute + dispatch + combine
    return {"bar": name, "compute": compute / whole,
            "dispatch": dispatch / whole, "combine": combine / whole,
            "of_fixed": total / whole, "compute_ms": compute,
            "dispatch_ms": dispatch, "combine_ms": combine, "total_ms": total,
            "dispatch_wire_ms": wire[0], "combine_wire_ms": wire[1]}


def figure8(got, gbit):
    rows = []
    whole = sum(parts_of(got["fixed"], gbit))
    paper = sum(FIGURE8["Megatron-LM"])
    for name, system, _ in WAYS:
        compute, out, home, out_wire, home_wire = parts_of(got[name], gbit)
        rows.append(bar(name, (compute, out + out_wire, home + home_wire),
                        (out_wire, home_wire), whole))
        if system:
            rows.append(bar(f"paper: {system}", FIGURE8[system], (None, None),
                            paper))
    return rows


# ---- What comes out ----------------------------------------------------------


def text(value, form):
    return "-" if value is None else format(value, form)


def show(first, eighth):
    print("# Table 1: MoE time to a loss (critical rank's CPU + modelled wire)")
    print("#  target    loss        policy  update    MoE s  of fixed  "
          "paper: of Megatron-LM  peak/mean forward  kept")
    for row in first:
        print(f"{row['target']:>9}  {row['loss']:.4f}  {row['policy']:>12}  "
              f"{text(row['step'], '6d'):>6}  {text(row['moe_s'], '7.3f'):>7}"
              f"  {text(row['of_fixed'], '8.3f'):>8}  "
              f"{text(row['paper_of_megatron'], '.3f'):>21}  "
              f"{row['imbalance_forward']:17.3f}  {row['imbalance_kept']:.3f}")
    print("# Figure 8: backward of a layer, ms (and of fixed's sum)")
    for row in eighth:
        print(f"{row['bar']:>20}  compute {row['compute_ms']:.2f}  dispatch "
              f"{row['dispatch_ms']:.2f}  combine {row['combine_ms']:.2f}  "
              f"sum {row['total_ms']:.2f} ({row['of_fixed']:.3f})")


def summarise(options, size):
    """Rows of Table 1 and of Figure 8."""
    got = {name: read(options, size, name) for name, _, _ in WAYS}
    return table1(got, options.link), figure8(got, options.link)


def model_of(options, size):
    """What the numbers rest on, for the JSON."""
    count = size["steps"] - size["begin"]
    return {"ranks": RANKS, "seed": SEED, "auxiliary": 0,
            "link_gbit": options.link,
            "time": "critical rank's CPU + wire; wire: sum over rounds of the "
                    "most bytes a rank sends or receives / link; no latency, "
                    "no overlap",
            "smoothed_over": width_of(count),
            "targets": "smoothed loss of fixed at 1/2 and 9/10 of the updates "
                       "after `begin`", **size}
