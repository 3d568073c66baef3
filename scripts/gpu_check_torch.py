#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GPT-2 with 124 million parameters in PyTorch, steps of 65,536 tokens: what Muster's steps are to
be seen beside. Mixed precision by autocast, fused attention and AdamW, as people train it; once
eager, once compiled. One JSON object a line; without torch or a GPU one line that says so.
"""
import json
import os
import statistics
import sys
import time

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY = 12, 12, 768, 1024, 50257
SAMPLES = 64  # of a step
WARM_UP, TIMED = 3, 10


def say(what, **more):
    print(json.dumps({"what": what, **more}), flush=True)


def make_model(torch):
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1 = nn.LayerNorm(WIDTH)
            self.attention_in = nn.Linear(WIDTH, 3 * WIDTH)
            self.attention_out = nn.Linear(WIDTH, WIDTH)
            self.norm2 = nn.LayerNorm(WIDTH)
            self.mlp_in = nn.Linear(WIDTH, 4 * WIDTH)
            self.mlp_out = nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x):
            batch, time_, width = x.shape
            heads = self.attention_in(self.norm1(x)).view(batch, time_, 3, HEADS, width // HEADS)
            query, key, value = (part.transpose(1, 2) for part in heads.unbind(2))
            attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            x = x + self.attention_out(attended.transpose(1, 2).reshape(batch, time_, width))
            inner = functional.gelu(self.mlp_in(self.norm2(x)), approximate="tanh")
            return x + self.mlp_out(inner)

    class Gpt2(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.positions = nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
            self.norm = nn.LayerNorm(WIDTH)
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, tokens, targets):
            x = self.tokens(tokens) + self.positions.weight
            for block in self.blocks:
                x = block(x)
            logits = functional.linear(self.norm(x), self.tokens.weight)
            return functional.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))

    return Gpt2().cuda()


def seconds_of_steps(torch, kind, compiled, micro):
    torch.manual_seed(1)
    model = make_model(torch)
    run = torch.compile(model) if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)
    scaler = torch.amp.GradScaler("cuda", enabled=kind == torch.float16)
    tokens = torch.randint(VOCABULARY, (SAMPLES, CONTEXT + 1), device="cuda")
    times = []
    for _ in range(WARM_UP + TIMED):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for first in range(0, SAMPLES, micro):
            part = tokens[first:first + micro]
            with torch.autocast("cuda", dtype=kind):
                loss = run(part[:, :-1].contiguous(), part[:, 1:].contiguous())
            scaler.scale(loss * (micro / SAMPLES)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return statistics.median(times[WARM_UP:])


def measure(torch, name, kind, compiled):
    how = "compiled" if compiled else "eager"
    for micro in (32, 16, 8):
        try:
            seconds = seconds_of_steps(torch, kind, compiled, micro)
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
            continue
        note = f"micro-batches of {micro}, torch {torch.__version__}"
        say(f"{name}: tokens, {how}", value=SAMPLES * CONTEXT / seconds, unit="1/s", note=note)
        say(f"{name}: step, {how}", value=seconds * 1e3, unit="ms")
        return
    say(f"{name}: {how}", note="no room")


def main():
    try:
        import torch
    except ImportError:
        say("PyTorch", note="not installed for " + sys.executable)
        return 0
    if not torch.cuda.is_available():
        say("PyTorch", note=f"torch {torch.__version__} sees no GPU")
        return 0
    torch.backends.cuda.matmul.allow_tf32 = True
    for name, kind, compiled in (("bf16", torch.bfloat16, False), ("fp16", torch.float16, False),
                                 ("bf16", torch.bfloat16, True), ("fp16", torch.float16, True)):
        try:
            measure(torch, name, kind, compiled)
        except Exception as error:  # torch.compile asks for compilers that may not be here
            how = "compiled" if compiled else "eager"
            say(f"{name}: {how}", note=repr(error).replace('"', "'").replace("\\", "/")[:200])
    return 0


if __name__ == "__main__":
    os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    sys.exit(main())
