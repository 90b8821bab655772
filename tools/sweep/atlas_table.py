#!/usr/bin/python3
"""The tables of tools/sweep/atlas.sh as Markdown, from what `choose --json` and `ablate --json` said
of its parts.

usage: tools/sweep/atlas_table.py DIR
Numbers are loss minus fp32 of the same seed, mean over seeds. A number with `?` is not told from
chance: it lies within Student's t at 99 %, one-sided, of zero, times its error, which is the deviation
over seeds or that of twins, whichever is larger, over the root of the number of seeds. One seed tells
nothing. What has not run is called missing.
"""
import json
import math
import pathlib
import sys

NETWORKS = {"gpt": "GPT", "llama": "Llama", "vit": "ViT", "resnet20": "ResNet-20"}
# Parts with their arms, as rows of the table.
ROWS = {
    "half": ["bf16", "fp16+dynamic", "fp16+adaptive"],
    "fp8": ["torchao_fp8_tensorwise", "torchao_fp8_rowwise", "torchao_fp8_rowwise_gw_hp"],
    "accumulators": ["fp8_tensorwise_h100", "fp8_rowwise_h100", "fp8_rowwise_gw_hp_h100"],
    "blocks": ["te_mxfp8", "deepseek_v3", "mxfp6_e2m3", "mxfp6_e3m2"],
    "fp4": ["torchao_nvfp4", "nvfp4_pretraining"],
    "states": ["bf16+torchao_8bit"],
    "muon": ["muon_bf16"],
}
SWITCHES = ["nvfp4_pretraining", "switch_all", "switch_forward", "switch_backward"]
T99 = {1: 31.82, 2: 6.965, 3: 4.541, 4: 3.747, 5: 3.365, 6: 3.143, 7: 2.998, 8: 2.896, 9: 2.821}


def read(folder, part):
    """What the part said; None: it has not run."""
    path = folder / f"{part}.json"
    if not path.exists():
        return None
    return json.loads(path.read_text(encoding="utf-8"))


def number(mean, deviation, noise, seeds):
    """A difference, and whether it is told from chance."""
    if mean is None or not math.isfinite(mean):
        return "did not train"
    error = max(deviation or 0, noise or 0) / math.sqrt(max(1, seeds))
    told = seeds > 1 and abs(mean) > T99.get(seeds - 1, 2.33) * error
    return f"{mean:+.4f}" + ("" if told else " ?")


def cell(said, arm):
    """(number, worst operand) of an arm."""
    if said is None:
        return "missing", ""
    for row in said["arms"]:
        if pathlib.PurePath(row["arm"]).stem != arm:
            continue
        if row["trouble"]:
            return row["trouble"], ""
        worst = f"{row['lost_tensor']} {row['lost_pct']:.3g} %" if row["lost_tensor"] else "-"
        return number(row["loss_minus_baseline"], row["deviation"], said["noise"],
                      len(row["loss_minus_baseline_by_seed"])), worst
    return "missing", ""


def print_table(titles, rows):
    print("| " + " | ".join(titles) + " |")
    print("|" + "---|" * len(titles))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_dir():
        sys.exit(__doc__.split("usage: ")[1].split("\n")[0])
    folder = pathlib.Path(sys.argv[1])
    said = {(network, part): read(folder, f"{network}/{part}")
            for network in NETWORKS for part in [*ROWS, "ablate", "switch"]}
    for network, title in NETWORKS.items():
        found = [one for (name, _), one in said.items() if name == network and one is not None]
        if found:
            print(f"{title}, {found[0]['steps']} of {found[0]['configured_steps']} steps, "
                  f"{len(found[0]['seeds'])} seeds; chance alone (twins of fp32): "
                  f"{found[0]['noise']:.2g}\n")
            print_table(["arm", "minus fp32", "lost most"],
                        [[arm, *cell(said[network, part], arm)] for part, arms in ROWS.items()
                         if said[network, part] for arm in arms])
            print()
    print("Missing parts: " + ", ".join(
        f"{network}/{part}" for network in NETWORKS for part in [*ROWS, *(
            ["switch", "ablate"] if network == "gpt" else [])]
        if said[network, part] is None and (network, part) != ("resnet20", "muon")))
    if said["gpt", "switch"]:
        print("\nThe last tenth of the steps in bf16 again, GPT:\n")
        print_table(["products", "minus fp32"], [[arm, cell(said["gpt", "switch"], arm)[0]]
                                                 for arm in SWITCHES])
    parts = said["gpt", "ablate"]
    if parts is None:
        return
    print("\nIngredients of nvfp4_pretraining, GPT:\n")

    def told(effect):
        return "" if effect["mean"] is None else (
            f"{effect['mean']:+.4f}" + ("" if effect["sure"] else " ?"))
    print_table(["ingredient", "alone", "left out", "says"],
                [[row["ingredient"], told(row["alone"]), told(row["left_out"]), row["says"]]
                 for row in parts["ingredients"]])


if __name__ == "__main__":
    main()
