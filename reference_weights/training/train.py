"""Train one of the two models: a schedule by steps (warm up, hold, let go), checkpoints, resume, a log.

Muon moves the matrices inside the blocks, AdamW the embedding, the router and the norms.

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
STEPS = 4400  # 18 million positions
PEAK, WARM_UP, HOLD = 3e-3, 100, 0.70  # highest rate; steps of warm-up; share of the steps before the rate falls
ROWS = 80_000  # packed once; a run of n steps reads the first 16 n of them


def rate(step, steps):
    """Learning rate of a step: it goes up, stays level, then goes straight down to nothing."""
    return PEAK * min(1.0, (step + 1) / WARM_UP, (steps - step) / ((1 - HOLD) * steps))


def optimizers(net):
    """Muon for the matrices inside the blocks; AdamW for what is looked up (embedding), chosen by (router) or a scale.

    Muon's step is scaled to the size of AdamW's (Liu et al. 2025, "Muon is Scalable for LLM Training"), so that one
    rate serves both.
    """
    named = dict(net.named_parameters())
    scales = [p for p in named.values() if p.dim() < 2]
    tables = [p for name, p in named.items() if name.endswith(("embed_tokens.weight", "mlp.gate.weight"))]
    matrices = [p for p in named.values() if not any(p is other for other in scales + tables)]
    groups = [{"params": tables, "weight_decay": 0.1}, {"params": scales, "weight_decay": 0.0}]
    return [
        torch.optim.Muon(matrices, lr=PEAK, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(groups, lr=PEAK, betas=(0.9, 0.95), fused=True),
    ]


def shares(number, counts):
    """How much each token counts: 1 / √n where n tokens of its document are learnt, else 0.

    One for one, a story would count as much as ten answers, and what only short answers teach would come late.
    """
    learnt = torch.zeros(len(number), int(number.max()) + 1).scatter_add(1, number, counts.float())
    return counts / learnt.gather(1, number).clamp(min=1).sqrt()  # [B, S]


def loss_of(forward, config, ids, number, counts):
    """(mean loss of the tokens that are learnt, the same with their shares, balance loss)."""
    logits, balance = forward(ids, number)
    each = F.cross_entropy(logits[:, :-1].reshape(-1, config["vocab_size"]), ids[:, 1:].reshape(-1), reduction="none")
    share = shares(number, counts)[:, 1:].reshape(-1)
    learnt = counts[:, 1:].reshape(-1)
    return (each.detach() * learnt).sum() / learnt.sum(), (each * share).sum() / share.sum(), balance


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


def train(model, build, steps=None, threads=2, compiled=True, export_to=None):
    steps = steps or STEPS
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
    movers = optimizers(net)
    start, saved, log = 0, folder / "checkpoint.pt", folder / "log.jsonl"
    if saved.exists():
        state = torch.load(saved)
        net.load_state_dict(state["net"])
        for mover, saved_state in zip(movers, state["optimizers"]):
            mover.load_state_dict(saved_state)
        start = state["step"]
        lines = [line for line in log.read_text().splitlines() if json.loads(line)["step"] <= start]
        log.write_text("".join(line + "\n" for line in lines))
        print(f"{model}: going on from step {start}", flush=True)
    else:
        log.write_text("")
    forward = torch.compile(net) if compiled else net

    clock, since, losses = time.time(), start, []
    for step in range(start, steps):
        for group in (group for mover in movers for group in mover.param_groups):
            group["lr"] = rate(step, steps)
        loss, shared, balance = loss_of(forward, config, *rows(arrays, step * BATCH, (step + 1) * BATCH))
        (shared + config.get("router_aux_loss_coef", 0.0) * balance).backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for mover in movers:
            mover.step()
            mover.zero_grad()
        losses.append(loss.item())
        done = step + 1
        if done % 20 == 0 or done == steps:
            speed = (done - since) * BATCH * LENGTH / (time.time() - clock)
            line = {
                "step": done,
                "loss": round(sum(losses) / len(losses), 4),
                "rate": round(rate(step, steps), 6),
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
            states = [mover.state_dict() for mover in movers]
            torch.save({"net": net.state_dict(), "optimizers": states, "step": done}, folder / "new.pt")
            os.replace(folder / "new.pt", saved)
    (folder / "training.json").write_text(
        json.dumps(
            {
                "steps": steps,
                "batch": BATCH,
                "length": LENGTH,
                "peak": PEAK,
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
    parser.add_argument("--steps", type=int, help="default: STEPS")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--export-to")
    args = parser.parse_args()
    if not (Path(args.build) / "tokenizer.json").exists():
        tokenizer.save(tokenizer.train(), args.build)
    train(
        args.model,
        args.build,
        args.steps,
        args.threads,
        not args.no_compile,
        args.export_to,
    )
