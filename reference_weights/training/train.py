"""Train one of the two models: AdamW, a schedule by steps (warm up, hold, let go), checkpoints, resume, a log.

    python -m training.train --model dense --build build --steps 3200

A stopped run goes on from its last checkpoint when the same command is given again.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from . import corpus, data, export, network, tokenizer

BATCH, LENGTH = 16, 256
WARM_UP, HOLD = 100, 0.70  # steps of warm-up; share of a wave before its rate falls to 0
# The schedule: waves of (last step, peak rate). Copying comes late: more waves are what these models need most.
WAVES = {"dense": [(2000, 3e-3)], "moe": [(1000, 3e-3)]}
ROWS = 64_000  # packed once; a run of n steps reads the first 16 n of them


def rate(step, waves):
    """Learning rate of a step; each wave goes up, stays level, then goes straight down to nothing."""
    start = 0
    for end, peak in waves:
        if step < end:
            up = (step - start + 1) / WARM_UP
            down = (end - step) / ((1 - HOLD) * (end - start))
            return peak * min(1.0, up, down)
        start = end
    return 0.0


def loss_of(forward, config, ids, number, counts):
    """(mean loss of the tokens that count, balance loss)."""
    logits, balance = forward(ids, number)
    each = F.cross_entropy(logits[:, :-1].reshape(-1, config["vocab_size"]), ids[:, 1:].reshape(-1), reduction="none")
    weight = counts[:, 1:].reshape(-1).float()
    return (each * weight).sum() / weight.sum(), balance


def rows(arrays, start, stop):
    ids, number, counts = (torch.from_numpy(np.array(a[start:stop])) for a in arrays)
    return ids.long(), number.long(), counts


@torch.no_grad()
def check(forward, config, arrays):
    """Loss on documents of another seed (same grammar)."""
    forward_loss = [
        loss_of(forward, config, *rows(arrays, i, i + BATCH))[0].item() for i in range(0, len(arrays[0]), BATCH)
    ]
    return sum(forward_loss) / len(forward_loss)


def train(model, build, waves=None, threads=2, compiled=True, export_to=None):
    waves = waves or WAVES[model]
    steps = waves[-1][0]
    torch.set_num_threads(threads)
    torch.manual_seed(corpus.SEED)
    build = Path(build)
    folder = build / model
    folder.mkdir(parents=True, exist_ok=True)
    tok = export.load_tokenizer(build)
    arrays, about = data.prepare(build / "corpus", tok, ROWS, LENGTH)
    fresh, _ = data.prepare(build / "check", tok, 4 * BATCH, LENGTH, corpus.SEED + 1)

    config = network.sizes(model)
    net = network.Network(config)
    decay = [p for p in net.parameters() if p.dim() == 2]
    rest = [p for p in net.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        lr=waves[0][1],
        betas=(0.9, 0.95),
        fused=True,
    )
    start, saved, log = 0, folder / "checkpoint.pt", folder / "log.jsonl"
    if saved.exists():
        state = torch.load(saved)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["step"]
        lines = [line for line in log.read_text().splitlines() if json.loads(line)["step"] <= start]
        log.write_text("".join(line + "\n" for line in lines))
        print(f"{model}: going on from step {start}", flush=True)
    else:
        log.write_text("")
    forward = torch.compile(net) if compiled else net

    clock, since, losses = time.time(), start, []
    for step in range(start, steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step, waves)
        loss, balance = loss_of(forward, config, *rows(arrays, step * BATCH, (step + 1) * BATCH))
        (loss + config.get("router_aux_loss_coef", 0.0) * balance).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        done = step + 1
        if done % 20 == 0 or done == steps:
            speed = (done - since) * BATCH * LENGTH / (time.time() - clock)
            line = {
                "step": done,
                "loss": round(sum(losses) / len(losses), 4),
                "rate": round(rate(step, waves), 6),
                "tokens": int((np.asarray(arrays[1][: done * BATCH]) > 0).sum()),
                "tokens_per_second": round(speed),
            }
            if config["use_moe"]:
                line["balance"] = round(balance.item(), 4)
            if done % 200 == 0 or done == steps:
                line["check_loss"] = round(check(forward, config, fresh), 4)
            with log.open("a") as file:
                file.write(json.dumps(line) + "\n")
            eta = (steps - done) * BATCH * LENGTH / speed
            print(
                f"{model} step {done}/{steps}  loss {line['loss']:.4f}  {speed:,.0f} tokens/s  {eta / 60:.0f} min to go"
                + (f"  balance {line['balance']}" if "balance" in line else "")
                + (f"  check {line['check_loss']}" if "check_loss" in line else ""),
                flush=True,
            )
            clock, since, losses = time.time(), done, []
        if done % 100 == 0 or done == steps:
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": done}, folder / "new.pt")
            os.replace(folder / "new.pt", saved)
    (folder / "training.json").write_text(
        json.dumps(
            {
                "steps": steps,
                "batch": BATCH,
                "length": LENGTH,
                "waves": waves,
                "parameters": sum(p.numel() for p in net.parameters()),
                "tokens": int((np.asarray(arrays[1][: steps * BATCH]) > 0).sum()),
                "learnt_tokens": int(np.asarray(arrays[2][: steps * BATCH]).sum()),
                "documents": int(np.asarray(arrays[1][: steps * BATCH]).max(1).sum()),
                "torch": torch.__version__,
                "seed": corpus.SEED,
            },
            indent=1,
        )
        + "\n"
    )
    if export_to:
        export.export(net.state_dict(), config, build, export_to)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["dense", "moe"], default="dense")
    parser.add_argument("--build", default="build")
    parser.add_argument("--steps", type=int, help="a single wave of so many steps; default: WAVES")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--export-to")
    args = parser.parse_args()
    if not (Path(args.build) / "tokenizer.json").exists():
        tokenizer.save(tokenizer.train(), args.build)
    train(
        args.model,
        args.build,
        [(args.steps, WAVES[args.model][0][1])] if args.steps else None,
        args.threads,
        not args.no_compile,
        args.export_to,
    )
