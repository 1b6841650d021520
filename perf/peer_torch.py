#!/usr/bin/python3
"""peer_torch: the backward of the same MoE layer by PyTorch over gloo.

Ranks are processes of this machine, one thread each; experts are SwiGLU, dealt
to ranks in order, and routing is log-normal.  Two ways, interleaved:

  masked   the gradient row of every pair crosses, zero where it was dropped,
           and every expert multiplies all of its pairs
  compact  by hand: only the rows of kept pairs cross and are multiplied

Which pairs are kept is known before the clock starts, so neither pays for a
selection.  Both give the same dX, which is compared.  gloo has no all-to-all;
each is a round of sends and receives of every pair of ranks.

Set beside moe_backward_perf with the same options, whose times include the
selection: `perf/report` puts their ratio on its page.

Exit codes: 0 good, 1 bad options, 3 no PyTorch, 7 wrong data.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

VERSION = "0.1.0"
WAYS = ("masked", "compact")


def load():
    """Takes seconds, so that bad options are said before; 0: not there."""
    global torch, dist, mp
    try:
        import torch
        import torch.distributed as dist
        import torch.multiprocessing as mp
    except ImportError:
        return 0
    return 1


class Parser(argparse.ArgumentParser):
    """Bad options end with 1, as in all programs here."""

    def error(self, message):
        self.exit(1, f"{self.prog}: {message}\n")


def read_options():
    parser = Parser(
        prog="peer_torch.py",
        description="Times the backward of an MoE layer by PyTorch over gloo.",
    )
    parser.add_argument("--version", action="version", version=VERSION)
    number = {"type": int, "metavar": "N"}
    parser.add_argument("-g", "--ranks", default=4, **number,
                        help="ranks: processes of this machine (4)")
    parser.add_argument("-b", "--tokens", default=1024, **number,
                        help="tokens per rank (1024)")
    parser.add_argument("-n", "--iters", default=9, **number,
                        help="timed rounds; both ways run in each (9)")
    parser.add_argument("--experts", default=32, **number, help="experts (32)")
    parser.add_argument("--topk", default=4, **number,
                        help="routing slots per token (4)")
    parser.add_argument("--hidden", default=512, **number,
                        help="hidden size (512)")
    parser.add_argument("--ffn", default=256, **number,
                        help="expert intermediate size (256)")
    parser.add_argument("-d", "--dtype", default="fp32",
                        choices=("bf16", "fp32"),
                        help="of rows and weights (fp32); bf16 takes PyTorch "
                        "1.13 minutes a round on CPUs without bf16 products")
    parser.add_argument("--retain", default=0.7, type=float, metavar="X",
                        help="share of pairs that backward keeps (0.7)")
    parser.add_argument("--sigma", default=1.0, type=float, metavar="X",
                        help="of the experts' log-normal popularity (1)")
    parser.add_argument("--seed", default=1, **number,
                        help="of routing and tensors (1)")
    parser.add_argument("-J", "--json", metavar="FILE",
                        help="write the results as JSON")
    options = parser.parse_args()
    if (min(options.ranks, options.tokens, options.iters, options.topk,
            options.hidden, options.ffn) < 1
            or options.experts < max(options.ranks, options.topk)
            or not 0 <= options.retain <= 1):
        parser.error("numbers are at least 1, --experts at least --ranks and "
                     "--topk, --retain in [0, 1]")
    return options


def all_to_all(rows, counts_out, counts_in):
    """Rows by target rank, those of this rank included; rows by source."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    out = rows.split(counts_out)
    got = rows.new_empty((sum(counts_in), rows.shape[1]))
    parts = got.split(counts_in)
    parts[rank].copy_(out[rank])
    work = []
    for step in range(1, ranks):
        target, source = (rank + step) % ranks, (rank - step) % ranks
        if counts_in[source]:
            work.append(dist.irecv(parts[source], source))
        if counts_out[target]:
            work.append(dist.isend(out[target].contiguous(), target))
    for one in work:
        one.wait()
    return got


class Layer:
    """One rank's part: its tokens, its experts, and a step's saved state."""

    def __init__(self, options, rank):
        self.o = options
        self.rank = rank
        self.type = torch.bfloat16 if options.dtype == "bf16" else torch.float32
        self.make_routing()
        random = torch.Generator().manual_seed(options.seed * 1000 + rank)
        shape = (options.tokens, options.hidden)
        self.x = torch.randn(shape, generator=random).to(self.type)
        self.g = torch.randn(shape, generator=random).to(self.type)
        first = rank * options.experts // options.ranks
        last = (rank + 1) * options.experts // options.ranks
        self.experts = range(first, last)
        h, f = options.hidden, options.ffn
        self.w1, self.w2, self.dw1, self.dw2 = [], [], [], []
        for _ in self.experts:
            w1 = torch.randn((2 * f, h), generator=random) / h**0.5
            w2 = torch.randn((h, f), generator=random) / f**0.5
            self.w1.append(w1.to(self.type))
            self.w2.append(w2.to(self.type))
            self.dw1.append(torch.zeros((2 * f, h)))
            self.dw2.append(torch.zeros((h, f)))

    def make_routing(self):
        """The pairs of every rank, in the order of their expert; those that
        are kept, the same share of each expert."""
        o = self.o
        random = torch.Generator().manual_seed(o.seed)
        popularity = o.sigma * torch.randn(o.experts, generator=random)
        shape = (o.ranks * o.tokens, o.experts)
        noise = torch.rand(shape, generator=random).log().neg().log().neg()
        idx = (popularity + noise).topk(o.topk).indices.view(o.ranks, -1)
        weights = torch.rand((o.ranks * o.tokens, o.topk), generator=random)
        weights = (weights / weights.sum(1, keepdim=True)).view(o.ranks, -1)
        score = torch.rand(idx.shape, generator=random)
        keep = torch.zeros(idx.shape, dtype=torch.bool)
        for e in range(o.experts):
            mine = (idx == e).nonzero()
            quota = -int(-o.retain * len(mine) // 1)
            best = score[mine[:, 0], mine[:, 1]].argsort()[:quota]
            keep[mine[best, 0], mine[best, 1]] = True
        order = idx[self.rank].argsort(stable=True)
        self.token = order // o.topk
        self.alpha = weights[self.rank][order].unsqueeze(1)
        self.keep = keep[self.rank][order]
        self.full = self.make_counts(idx, torch.ones_like(keep))
        self.kept = self.make_counts(idx, keep)

    def make_counts(self, idx, keep):
        """Counts [source, expert] of the pairs with `keep`."""
        o = self.o
        return torch.stack([
            torch.bincount(idx[r][keep[r]], minlength=o.experts)
            for r in range(o.ranks)])

    def owner_counts(self, counts):
        """Rows that this rank sends to each, and gets from each."""
        o = self.o
        bounds = [r * o.experts // o.ranks for r in range(o.ranks + 1)]
        out = [int(counts[self.rank, bounds[r]:bounds[r + 1]].sum())
               for r in range(o.ranks)]
        got = [int(counts[r, self.experts.start:self.experts.stop].sum())
               for r in range(o.ranks)]
        return out, got

    def by_expert(self, counts):
        """Places of the rows that came, by source, of each local expert."""
        places = [[] for _ in self.experts]
        at = 0
        for r in range(self.o.ranks):
            for i, e in enumerate(self.experts):
                n = int(counts[r, e])
                places[i].append(torch.arange(at, at + n))
                at += n
        return [torch.cat(one) for one in places]

    def forward(self):
        """Saves x and FC1's output of every pair, by expert."""
        out, got = self.owner_counts(self.full)
        rows = all_to_all(self.x[self.token], out, got)
        flags = all_to_all(self.keep.float().unsqueeze(1), out, got)
        self.places = self.by_expert(self.full)
        self.kept_places = self.by_expert(self.kept)
        self.saved = []
        self.saved_kept = []
        for i, places in enumerate(self.places):
            x = rows[places]
            fc1 = x @ self.w1[i].T
            which = flags[places].squeeze(1).bool()
            self.saved.append((x, fc1))
            self.saved_kept.append((x[which], fc1[which]))

    def expert(self, i, dy, saved):
        """dX of an expert's rows; adds to its weight gradients."""
        x, fc1 = saved
        gate, up = fc1.float().chunk(2, dim=1)
        sigmoid = gate.sigmoid()
        silu = gate * sigmoid
        phi = (silu * up).to(self.type)
        dphi = (dy @ self.w2[i]).float()
        self.dw2[i] += (dy.T @ phi).float()
        dgate = dphi * up * (sigmoid + silu * (1 - sigmoid))
        dfc1 = torch.cat((dgate, dphi * silu), dim=1).to(self.type)
        self.dw1[i] += (dfc1.T @ x).float()
        return dfc1 @ self.w1[i]

    def backward(self, way):
        is_compact = way == "compact"
        rows = (self.alpha * self.g[self.token].float()).to(self.type)
        token = self.token
        if is_compact:
            rows, token = rows[self.keep], token[self.keep]
        else:
            rows = rows * self.keep.unsqueeze(1).to(self.type)
        counts = self.kept if is_compact else self.full
        places = self.kept_places if is_compact else self.places
        saved = self.saved_kept if is_compact else self.saved
        out, got = self.owner_counts(counts)
        dy = all_to_all(rows, out, got)
        back = torch.empty_like(dy)
        for i, where in enumerate(places):
            back[where] = self.expert(i, dy[where], saved[i])
        home = all_to_all(back, got, out)
        dx = torch.zeros(self.x.shape)
        dx.index_add_(0, token, home.float())
        return dx


def time_way(layer, way):
    dist.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    layer.backward(way)
    cpu = time.process_time() - cpu
    dist.barrier()
    return 1e3 * (time.perf_counter() - wall), 1e3 * cpu


def run_rank(rank, options, meeting, results):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meeting,
                            rank=rank, world_size=options.ranks)
    layer = Layer(options, rank)
    layer.forward()
    dx = {way: layer.backward(way) for way in WAYS}
    size = dx["masked"].norm()
    allowed = (2e-2 if options.dtype == "bf16" else 1e-4) * size
    wrong = int(not (dx["masked"] - dx["compact"]).norm() <= allowed)
    times = [[time_way(layer, way) for way in WAYS]
             for _ in range(options.iters)]
    results.put((rank, wrong, times))
    dist.barrier()
    dist.destroy_process_group()


def run(options):
    """Per rank (wrong, times [round][way] of wall and CPU)."""
    context = mp.get_context("fork")
    results = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=run_rank,
                                 args=(r, options, os.path.join(folder, "m"),
                                       results), daemon=True)
                 for r in range(options.ranks)]
        for one in ranks:
            one.start()
        got = []
        while len(got) < options.ranks:
            if not results.empty():
                got.append(results.get())
            elif any(one.exitcode not in (None, 0) for one in ranks):
                sys.exit("peer_torch.py: a rank has failed")
            else:
                time.sleep(0.01)
        for one in ranks:
            one.join()
    return got


def spread(values):
    if len(values) < 2:
        return 0.0
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    return 50 * (quarters[2] - quarters[0]) / statistics.median(values)


def summarise(options, got):
    rows = []
    for way, name in enumerate(WAYS):
        most = [[max(times[i][way][kind] for _, _, times in got)
                 for i in range(options.iters)] for kind in range(2)]
        rows.append({"way": name, "tokens": options.tokens,
                     "retain": options.retain,
                     "time_ms": statistics.median(most[0]),
                     "spread": spread(most[0]),
                     "cpu_ms": statistics.median(most[1]),
                     "wrong": sum(wrong for _, wrong, _ in got)})
    return rows


def main():
    options = read_options()
    if not load():
        print("peer_torch.py: PyTorch is missing: install Debian's "
              "python3-torch", file=sys.stderr)
        return 3
    rows = summarise(options, run(options))
    print(f"# peer_torch: PyTorch {torch.__version__}, gloo, {options.ranks} "
          f"ranks, {options.experts} experts, top-{options.topk}, H "
          f"{options.hidden}, F {options.ffn}, {options.dtype}")
    print("#    way  time ms    +- %   cpu ms  wrong")
    for row in rows:
        print(f"{row['way']:>8} {row['time_ms']:8.2f} {row['spread']:7.1f} "
              f"{row['cpu_ms']:8.2f} {row['wrong']:6d}")
    if options.json:
        document = {"schema": 1, "program": "peer_torch", "version": VERSION,
                    "options": vars(options), "results": rows}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
    return 7 if any(row["wrong"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
