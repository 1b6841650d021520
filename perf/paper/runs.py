"""What the scripts beside share: the model, and runs of train_moe."""

import os
import shutil
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = ["--dim", "64", "--layers", "2", "--heads", "4", "--experts", "16",
         "--topk", "4", "--ffn", "64", "--context", "64", "--grams", "4",
         "--gram-rows", "16384", "--lr", "3e-3", "--warmup", "40"]
LAYERS = 2

def run(options, size, more, env=None):
    """One run of train_moe, of which `more` is the end of the command.  Up to
    size["begin"] all pairs are kept."""
    words = [options.program, *MODEL, "-n", str(size["steps"]),
             "--exact", str(size["begin"]), "--batch", str(size["batch"]),
             "--held-out-every", "0", *more]
    if options.text:
        words += ["--text", options.text]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL,
                   env=dict(os.environ, **(env or {})))


def branch(base, step, folder):
    """A folder of checkpoints that ends at `step` of base's."""
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    for entry in os.listdir(base):
        if entry.endswith(f"{step:012d}"):
            shutil.copytree(os.path.join(base, entry),
                            os.path.join(folder, entry))


def mean(values):
    return sum(values) / len(values)
