"""Splits a checkpoint into small files: weights as f16, without the optimizer's state.

    python pack.py split RUN/checkpoint.pt FOLDER [--piece 15]     (MiB)
    python pack.py join FOLDER RUN/checkpoint.pt
The optimizer recovers its momentum within a hundred steps.
"""
import argparse
import glob
import io
import os

import torch


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("what", choices=["split", "join"])
    a.add_argument("source")
    a.add_argument("target")
    a.add_argument("--piece", type=int, default=15)
    o = a.parse_args()
    if o.what == "split":
        data = torch.load(o.source, map_location="cpu", weights_only=False)
        data["optims"] = None
        data["model"] = {k: v.half() for k, v in data["model"].items()}
        box = io.BytesIO()
        torch.save(data, box)
        raw, size = box.getvalue(), o.piece << 20
        os.makedirs(o.target, exist_ok=True)
        for i, at in enumerate(range(0, len(raw), size)):
            with open(os.path.join(o.target, f"checkpoint.{i:02d}"), "wb") as f:
                f.write(raw[at: at + size])
    else:
        names = sorted(glob.glob(os.path.join(o.source, "checkpoint.[0-9][0-9]")))
        if not names:
            raise SystemExit(f"{o.source}: no parts of a checkpoint")
        raw = b"".join(open(n, "rb").read() for n in names)
        data = torch.load(io.BytesIO(raw), map_location="cpu", weights_only=False)
        data["model"] = {k: v.float() for k, v in data["model"].items()}
        os.makedirs(os.path.dirname(o.target) or ".", exist_ok=True)
        torch.save(data, o.target + ".part")
        os.replace(o.target + ".part", o.target)


if __name__ == "__main__":
    main()
