// precision.operands: its forms, what beats what, recipes, and the way back to YAML.
#include <doctest/doctest.h>

#include <array>
#include <string>

#include "config/load.h"
#include "config/refusal.h"
#include "error.h"
#include "temp_folder.h"

namespace ada::config {
namespace {

using enum Operand;

Config With(const std::string& precision) {
  return LoadText("data: {dataset: synthetic}\nmodel: {zoo: lenet}\noptimizer: {lr: 0.1}\n",
                  "text.yaml", {{"precision", precision}})
      .config;
}
std::string NameOf(const OperandsConfig& operands, Operand operand) {
  const auto& field = operands.by_operand[IndexOf(operand)];
  return !field ? "unset" : !field->format ? "none" : FormatName(*field->format);
}
std::string NamesOf(const OperandsConfig& operands) {
  std::string names;
  for (std::size_t i = 0; i < kOperands; ++i)
    names += (i > 0 ? " " : "") + NameOf(operands, static_cast<Operand>(i));
  return names;
}
std::string Operands(const std::string& operands) {
  return NamesOf(With("{format: bf16, operands: " + operands + "}").precision.operands);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("operands: one format, tensors, products, and single operands of these") {
    CHECK(With("{}").precision.operands.given() == false);
    CHECK(Operands("none") == "none none none none none none");
    CHECK(Operands("mxfp8_e4m3") ==
          "mxfp8_e4m3 mxfp8_e4m3 mxfp8_e4m3 mxfp8_e4m3 mxfp8_e4m3 mxfp8_e4m3");
    CHECK(Operands("{x: fp8_e4m3, dy: fp8_e5m2}") ==
          "fp8_e4m3 unset fp8_e5m2 unset fp8_e4m3 fp8_e5m2");
    CHECK(Operands("{dw: {x: nvfp4}, x: mxfp4}") == "mxfp4 unset unset unset nvfp4 unset");
    CHECK(Operands("{x: mxfp4, w: mxfp4, dw: none}") == "mxfp4 mxfp4 unset mxfp4 none none");
    CHECK(Operands("{dx: mxfp4}") == "unset unset mxfp4 mxfp4 unset unset");
    CHECK(Operands("{element: fp4_e2m1, block: [16, 16], scale: fp8_e4m3}")
              .starts_with("{element: fp4_e2m1, block: [16, 16], scale: fp8_e4m3} "));
    CHECK(Operands("{w: {element: fp4_e2m1, scale: fp8_e4m3, tensor_scale: row}}")
              .find("{element: fp4_e2m1, block: 16, scale: fp8_e4m3, tensor_scale: row}") !=
          std::string::npos);
    CHECK(Operands("{exponent: 4, mantissa: 2}").starts_with("{exponent: 4, mantissa: 2"));
    const OperandsConfig dy =
        With("{operands: {dy: {format: nvfp4, rounding: stochastic}}}").precision.operands;
    CHECK(dy.by_operand[IndexOf(kDwDy)]->rounding == RoundingKind::kStochastic);
    const Config layers = With("{operands: mxfp4, layers: [{match: fc, operands: {dw: none}}]}");
    CHECK(NamesOf(layers.precision.layers[0].operands) == "unset unset unset unset none none");
  }

  TEST_CASE("a format of a file over another's is what it says, as of --set") {
    const ada::testing::TempFolder folder;
    const std::string base =
        "data: {dataset: synthetic}\nmodel: {zoo: lenet}\noptimizer: {lr: 0.1}\nprecision: ";
    const auto text = [&](const std::string& precision, const Overrides& overrides) {
      return ToYaml(LoadText(base + precision + "\n", "text.yaml", overrides).config);
    };
    struct Row {
      std::string was, key, value, is;
    };
    const std::string moved = "{exponent: 5, mantissa: 10, bias: 14}";
    const std::string blocks = "{element: fp8_e4m3, block: 32, scale: fp32, power_of_two: true}";
    for (const Row& row : {
             Row{"{format: " + moved + "}", "format", "{exponent: 4, mantissa: 3}",
                 "{format: {exponent: 4, mantissa: 3}}"},
             {"{gradients: " + moved + "}", "gradients", "{exponent: 4, mantissa: 3}",
              "{gradients: {exponent: 4, mantissa: 3}}"},
             {"{masters: {format: " + moved + "}}", "masters.format", "{exponent: 5, mantissa: 9}",
              "{masters: {format: {exponent: 5, mantissa: 9}}}"},
             {"{operands: " + blocks + "}", "operands", "{element: fp4_e2m1, block: 16}",
              "{operands: {element: fp4_e2m1, block: 16}}"},
             {"{operands: {dx: {w: mxfp4}, x: nvfp4}}", "operands", blocks,
              "{operands: " + blocks + "}"},
             {"{operands: {dx: {w: mxfp4}}}", "operands.dx", blocks,
              "{operands: {dx: " + blocks + "}}"},
             {"{operands: {dw: {x: " + blocks + "}}}", "operands.dw.x", "{element: fp4_e2m1}",
              "{operands: {dw: {x: {element: fp4_e2m1}}}}"},
             {"{operands: {x: {format: mxfp4, rounding: stochastic}}}", "operands.x", blocks,
              "{operands: {x: " + blocks + "}}"},
         }) {
      CAPTURE(row.was);
      CAPTURE(row.key);
      std::string file = row.value;
      for (std::size_t at = row.key.size(), dot = 0; dot != std::string::npos; at = dot) {
        dot = row.key.rfind('.', at - 1);
        const std::size_t begin = dot == std::string::npos ? 0 : dot + 1;
        file = "{" + row.key.substr(begin, at - begin) + ": " + file + "}";
      }
      folder.Write("with.yaml", "precision: " + file + "\n");
      const std::string wanted = text(row.is, {});
      CHECK(text(row.was, OverridesFrom(folder / "with.yaml")) == wanted);
      CHECK(text(row.was, {{"precision." + row.key, row.value}}) == wanted);
    }
  }

  TEST_CASE("keys of operands over a format: the format goes, or becomes a key") {
    const auto operands = [](const std::string& was, const Override& change) {
      return LoadText(
          "data: {dataset: synthetic}\nmodel: {zoo: lenet}\noptimizer: {lr: 0.1}\n"
          "precision: {operands: " +
              was + "}\n",
          "text.yaml", {change});
    };
    const std::string blocks = "{element: fp4_e2m1, block: 16}";
    const Loaded product = operands(blocks, {"precision.operands.dx", "mxfp4"});
    CHECK(NamesOf(product.config.precision.operands) == "unset unset mxfp4 mxfp4 unset unset");
    REQUIRE(product.notes.size() == 1);
    CHECK(product.notes[0] == "text.yaml:4:13: precision.operands: " + blocks +
                                  " dropped for --set precision.operands.dx");
    const Loaded one = operands("{dx: " + blocks + "}", {"precision.operands.dx.w", "mxfp4"});
    CHECK(NamesOf(one.config.precision.operands) == "unset unset unset mxfp4 unset unset");
    const Loaded rounded =
        operands("{x: " + blocks + "}", {"precision.operands.x.rounding", "stochastic"});
    const OperandsConfig& both = rounded.config.precision.operands;
    CHECK(NamesOf(both).starts_with(blocks.substr(0, blocks.size() - 1)));
    CHECK(both.by_operand[IndexOf(kDwX)]->rounding == RoundingKind::kStochastic);
    CHECK(rounded.notes.empty());
    const Loaded kept =
        operands("{dw: {x: mxfp4}, w: nvfp4}", {"precision.operands.dw.dy", blocks});
    CHECK(NameOf(kept.config.precision.operands, kDwX) == "mxfp4");
    CHECK(NameOf(kept.config.precision.operands, kDxW) == "nvfp4");
  }

  TEST_CASE("operands: scales, transforms and spared layers") {
    const OperandsConfig o =
        With(
            "{operands: {x: fp8_e4m3, tensor_scaling: current, hadamard: {signs: random}, "
            "spared: {last: 2}}}")
            .precision.operands;
    CHECK(o.tensor_scaling->kind == TensorScalingConfig::Kind::kCurrent);
    CHECK(o.hadamard->signs == HadamardConfig::Signs::kRandom);
    CHECK(o.spared->first == 0);
    CHECK(o.spared->last == 2);
    const Config layers = With(
        "{layers: [{match: fc, operands: {x: fp8_e4m3, tensor_scaling: {kind: delayed, history: "
        "16}}}]}");
    CHECK(layers.precision.layers[0].operands.tensor_scaling->history == 16);
  }

  TEST_CASE("operands: what is written reads back to the same") {
    for (const char* precision :
         {"{operands: mxfp8_e4m3}",
          "{operands: {forward: {x: nvfp4}, dx: none, dw: {dy: {format: mxfp4, rounding: "
          "stochastic}}, tensor_scaling: {kind: current, power_of_two: true}, hadamard: {}, "
          "spared: {first: 1}}, layers: [{match: fc, operands: none}]}",
          "{recipe: te_nvfp4}", "{recipe: mxfp4_hadamard, format: fp16}",
          "{recipe: te_fp8_delayed, operands: {dy: none}}",
          "{recipe: torchao_fp8_rowwise_gw_hp, operands: {tensor_scaling: {reference: true}}}",
          "{recipe: torchao_int8}", "{recipe: modded_nanogpt_head}",
          "{operands: {x: {format: fp8_e4m3, rounding: stochastic_b, random_bits: 3}, w: hifloat8, "
          "dy: binary6p2sf, hadamard: {products: [forward, dx], size: 32, signs: [1, 1, -1, 1, 1, "
          "1, "
          "1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1]}}}",
          "{format: binary8p4se, rounding: stochastic_c, random_bits: 5, overflow: "
          "saturate_finite, "
          "layers: [{match: fc, gradients: hifloat8}]}",
          "{operands: {x: mxint8, dx: {w: as_forward}, dw: {x: as_forward, dy: {format: int8, "
          "tensor_scaling: row, overflow: saturate}}, tensor_scaling: {kind: static, values: {x: "
          "2}}}, layers: [{match: fc, recipe: torchao_fp8_tensorwise}]}"}) {
      CAPTURE(precision);
      const Config config = With(precision);
      const std::string yaml = ToYaml(config);
      CHECK(ToYaml(LoadText(yaml, "text.yaml", {}).config) == yaml);
    }
  }

  TEST_CASE("recipes: what they set, and what beats them") {
    const auto of = [](const std::string& recipe) {
      return NamesOf(With("{recipe: " + recipe + "}").precision.operands);
    };
    const std::string square = "{element: fp4_e2m1, block: [16, 16], scale: fp8_e4m3}";
    const std::string rceil = "{element: fp8_e4m3, block: 32, scale: e8m0, rule: rceil}";
    CHECK(of("te_fp8_current") == "fp8_e4m3 fp8_e4m3 fp8_e5m2 fp8_e4m3 fp8_e4m3 fp8_e5m2");
    CHECK(of("te_fp8_delayed") == of("te_fp8_current"));
    CHECK(of("te_mxfp8").starts_with(rceil + " " + rceil));
    CHECK(of("torchao_mxfp8") == of("te_mxfp8"));
    CHECK(of("te_nvfp4") == "nvfp4 " + square + " nvfp4 " + square + " nvfp4 nvfp4");
    CHECK(of("nvfp4_pretraining") == of("te_nvfp4"));
    CHECK(of("deepseek_v3")
              .starts_with(
                  "fp8_block128 {element: fp8_e4m3, block: [128, 128], scale: fp32} fp8_block128"));
    CHECK(of("mxfp4_hadamard") == "none none mxfp4 mxfp4 mxfp4 mxfp4");
    CHECK(of("torchao_fp8_tensorwise") == of("te_fp8_current"));
    CHECK(of("torchao_fp8_rowwise") == "fp8_e4m3 fp8_e4m3 fp8_e4m3 fp8_e4m3 fp8_e4m3 fp8_e4m3");
    CHECK(of("torchao_fp8_rowwise_gw_hp") == "fp8_e4m3 fp8_e4m3 fp8_e4m3 fp8_e4m3 none none");
    CHECK(of("torchao_int8") == "int8 int8 int8 int8 int8 int8");
    CHECK(of("torchao_nvfp4") == of("te_nvfp4"));
    CHECK(of("modded_nanogpt_head") == of("te_fp8_current"));
    CHECK(With("{recipe: te_mxfp8}").precision.format == kBf16);
    CHECK(With("{recipe: te_mxfp8, format: fp16}").precision.format == kFp16);
    CHECK(With("{recipe: nvfp4_pretraining}").precision.operands.spared->last == 1);
    CHECK(With("{recipe: te_nvfp4}").precision.operands.hadamard.has_value());
    const Config own = With("{recipe: te_nvfp4, operands: {dw: none}}");
    CHECK(NamesOf(own.precision.operands).ends_with("none none"));
  }

  TEST_CASE("recipes: keys of tensor_scaling without a kind change the recipe's") {
    using Kind = TensorScalingConfig::Kind;
    const auto scaling = [](const std::string& precision) {
      return *With(precision).precision.operands.tensor_scaling;
    };
    const TensorScalingConfig rows = scaling("{recipe: torchao_fp8_rowwise}");
    CHECK(rows.kind == Kind::kRow);
    CHECK(rows.power_of_two);
    CHECK_FALSE(rows.reference);
    const TensorScalingConfig changed = scaling(
        "{recipe: torchao_fp8_rowwise, operands: {tensor_scaling: {reference: true, "
        "power_of_two: false}}}");
    CHECK(changed.kind == Kind::kRow);
    CHECK(changed.system == scaling::ScaleSystem::kTorchao);
    CHECK_FALSE(changed.power_of_two);
    CHECK(changed.reference);
    CHECK(scaling("{recipe: torchao_fp8_rowwise, operands: {tensor_scaling: current}}").system ==
          scaling::ScaleSystem::kTe);
    const auto refused = [](const std::string& precision) {
      return RefusalOf([&] { With(precision); });
    };
    CHECK(refused("{operands: {tensor_scaling: {power_of_two: true}}}")
              .find("tensor_scaling.kind: missing") != std::string::npos);
    CHECK(refused("{recipe: te_mxfp8, operands: {tensor_scaling: {power_of_two: true}}}")
              .find("tensor_scaling.kind: missing") != std::string::npos);
    // A key that the recipe's kind does not have would change nothing.
    for (const auto& [recipe, key, words] :
         {std::array{"te_fp8_current", "history: 3", "does not belong to kind current"},
          std::array{"te_fp8_delayed", "interval: 3", "only to predicted"},
          std::array{"torchao_int8", "values: {x: 2}", "does not belong to kind row"},
          std::array{"te_fp8_current", "reference: true", "rule torchao"}})
      CHECK(refused(std::string("{recipe: ") + recipe + ", operands: {tensor_scaling: {" + key +
                    "}}}")
                .find(words) != std::string::npos);
    const TensorScalingConfig fixed =
        scaling("{recipe: modded_nanogpt_head, operands: {tensor_scaling: {values: {x: 3}}}}");
    CHECK(fixed.values.x == 3);
    CHECK(fixed.values.w == 512);
    CHECK(refused("{operands: {x: as_forward}}").find("operands.dw.x") != std::string::npos);
    CHECK(refused("{operands: {tensor_scaling: {kind: current, reference: true}}}")
              .find("rule torchao") != std::string::npos);
    CHECK(refused("{operands: {tensor_scaling: static}}").find("values") != std::string::npos);
  }

  TEST_CASE("formats of tables and modes: where they stand, and where they do not") {
    const PrecisionConfig stored =
        With("{format: binary8p3se, gradients: hifloat8, rounding: toward_odd, overflow: none}")
            .precision;
    CHECK(FormatName(stored.format) == "binary8p3se");
    CHECK(FormatName(*stored.gradients) == "hifloat8");
    CHECK(stored.rounding == RoundingKind::kTowardOdd);
    CHECK(stored.overflow == OverflowKind::kFormat);
    CHECK(Operands("hifloat8").starts_with("hifloat8 hifloat8"));
    const auto refused = [](const std::string& precision) {
      return RefusalOf([&] { With(precision); });
    };
    CHECK(refused("{format: binary9p3se}").find("expected binaryKpPse") != std::string::npos);
    CHECK(refused("{format: hifloat4}").find("block-scaled") != std::string::npos);
    CHECK(Operands("hifloat4").starts_with("hifloat4 hifloat4"));
    CHECK(Operands("{element: fp4_e1m2, scale: e6m2}").starts_with("hifloat4 hifloat4"));
    for (const char* other :
         {"{element: fp4_e2m1, scale: e6m2}", "{element: fp4_e1m2, block: 32, scale: e6m2}"})
      CHECK(refused(std::string("{operands: ") + other + "}").find("blocks of 64") !=
            std::string::npos);
    CHECK(refused("{operands: {x: {format: hifloat4, rounding: stochastic}}}").find("ties away") !=
          std::string::npos);
    for (const char* key : {"masters", "optimizer_state", "accumulate: {forward: {accumulator",
                            "optimizer_state: {exp_avg"}) {
      const std::string open(key);
      const bool nested = open.find('{') != std::string::npos;
      const std::string text = refused("{" + open + ": hifloat8" +
                                       (open.find("forward") != std::string::npos ? "}}}"
                                        : nested                                  ? "}}"
                                                                                  : "}"));
      CHECK(text.find("for stored tensors and operands alone") != std::string::npos);
    }
    CHECK(refused("{rounding: toward_zero, random_bits: 3}").find("stochastic_a") !=
          std::string::npos);
    CHECK(refused("{masters: {format: bf16, rounding: toward_zero}}").find("nearest, stochastic") !=
          std::string::npos);
    CHECK(refused("{operands: {x: {format: mxfp4, rounding: nearest_away}}}")
              .find("elements of blocks") != std::string::npos);
  }

  TEST_CASE("operands: a block format cannot stand elsewhere, and what does not fit is refused") {
    const auto refused = [](const std::string& precision) {
      return RefusalOf([&] { With(precision); });
    };
    CHECK(refused("{format: mxfp8_e4m3}").find("precision.operands") != std::string::npos);
    CHECK(refused("{operands: mxfp4x}").find("did you mean 'mxfp4'") != std::string::npos);
    CHECK(refused("{operands: {hadamard: {size: 24}}}")
              .find("expected 16, 32, 64 or 128; got '24'") != std::string::npos);
    CHECK(refused("{operands: {hadamard: {signs: [1, -1]}}}")
              .find("expected a list of 16 signs, each 1 or -1, as `size` says; got 2") !=
          std::string::npos);
    CHECK(refused("{operands: {hadamard: {products: []}}}").find("at least one product") !=
          std::string::npos);
    const std::string forward = refused("{operands: {hadamard: {products: [y]}}}");
    CHECK(forward.find("expected one of forward, dx, dw; got 'y'") != std::string::npos);
    CHECK(forward.find("at least one product") == std::string::npos);
    CHECK(refused("{operands: {dy: {format: {element: fp4_e2m1, scale: fp8_e4m3, rule: "
                  "four_over_six}, rounding: stochastic}}}")
              .find("rounded to nearest") != std::string::npos);
    const std::string reference = RefusalOf([] {
      LoadText(
          "data: {dataset: synthetic}\nmodel: {zoo: lenet}\noptimizer: {lr: 0.1}\n"
          "precision: {format: fp16, operands: fp8_e4m3}\n"
          "scaling: {policy: adaptive, reference: true}\n",
          "text.yaml", {});
    });
    CHECK(reference.find("scaling.reference") != std::string::npos);
  }
}

}  // namespace ada::config
