"""Make the models in the box again: tokenizer, corpus, training, evaluation, card.

    pip install -e '.[train]'
    python reference_weights/make.py                      # both, into build/reference_weights
    python reference_weights/make.py --model moe --install

Nothing in the repository changes unless ``--install`` is given. A stopped run goes on where it stopped when the command
is given again; ``--steps 200`` is a quick rehearsal. The tokenizer and the corpus come out the same to the byte.
"""

import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]  # the training modules, and npminimind where it isn't installed

FOLDERS = {"dense": "minimind-tiny", "moe": "minimind-tiny-moe"}


def make(model, build, target, steps, threads):
    from training import card, evaluate, tokenizer, train

    if not (build / "tokenizer.json").exists():
        print("tokenizer ...", flush=True)
        tokenizer.save(tokenizer.train(), build)
    folder = target / FOLDERS[model]
    # Routing sends each expert a different number of rows each time; compiling that does not pay.
    train.train(model, build, steps, threads, compiled=model == "dense", export_to=folder)
    evaluate.write(folder)
    card.write(folder, build, model)
    print(f"{folder}: done")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=[*FOLDERS, "both"], default="both")
    parser.add_argument("--build", type=Path, default=Path("build/reference_weights"), help="corpus, checkpoints, logs")
    parser.add_argument("--steps", type=int, default=None, help="default: what the published models were trained for")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--install", action="store_true", help="write into reference_weights/ itself")
    args = parser.parse_args()

    for name in FOLDERS if args.model == "both" else [args.model]:
        make(name, args.build, HERE if args.install else args.build, args.steps, args.threads)
