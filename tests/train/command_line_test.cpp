// What the program prints and returns without training: help, lists, usage errors, --print-config,
// --dry-run.
#include <algorithm>
#include <string>
#include <vector>

#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;

std::size_t Count(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++count;
  return count;
}

TEST_SUITE("cpu") {
  TEST_CASE("--help of every command ends with two examples") {
    const TempFolder folder;
    for (const Arguments& command : {Arguments{},
                                     {"train"},
                                     {"evaluate"},
                                     {"inspect"},
                                     {"convert"},
                                     {"picture"},
                                     {"replay"},
                                     {"score"},
                                     {"what-if"},
                                     {"recommend"},
                                     {"compare"},
                                     {"watch"},
                                     {"models"},
                                     {"policies"},
                                     {"formats"},
                                     {"accumulators"},
                                     {"datasets"},
                                     {"schema"},
                                     {"help"}}) {
      const Outcome o = Run(With(command, {"--help"}), folder.path());
      CAPTURE(o.out);
      ADA_CHECK_EXIT(o, 0);
      CHECK(o.err.empty());
      const std::size_t examples = o.out.find("Examples:");
      REQUIRE(examples != std::string::npos);
      const std::string wanted = "\n  ada-train " + (command.empty() ? "" : command.front());
      CHECK(Count(o.out.substr(examples), wanted) >= 2);
    }
  }

  TEST_CASE("lists and --version go to stdout") {
    struct List {
      std::string command;
      std::vector<std::string> names;
    };
    const List lists[] = {
        {"models",
         {"mlp",
          "lenet",
          "resnet20",
          "resnet32",
          "resnet44",
          "resnet56",
          "resnet110",
          "preresnet20",
          "preresnet32",
          "preresnet44",
          "preresnet56",
          "preresnet110",
          "preresnet164",
          "wide_resnet28_10",
          "wide_resnet16_8",
          "vgg11",
          "vgg13",
          "vgg16",
          "vgg19",
          "resnet18",
          "resnet34",
          "resnet50",
          "resnet101",
          "resnet152",
          "wide_resnet50_2",
          "mobilenet_v2",
          "densenet121"}},
        {"policies", {"none", "fixed", "dynamic", "adaptive"}},
        {"formats", {"fp32", "fp16", "bf16"}},
        {"accumulators", {"volta_f32", "hopper_fp8_promote128", "fma_fp32"}},
        {"datasets", {"cifar10", "cifar100", "mnist", "fashion_mnist", "synthetic"}},
        {"--version", {"ada-train", "commit", "compiler", "backends", "cuda"}},
    };
    const TempFolder folder;
    for (const List& list : lists) {
      CAPTURE(list.command);
      const Outcome o = Run({list.command}, folder.path());
      ADA_CHECK_EXIT(o, 0);
      CHECK(o.err.empty());
      for (const std::string& name : list.names) {
        CAPTURE(name);
        CHECK(Contains("\n" + o.out, "\n" + name));
      }
    }
    CHECK(Contains(Run({"--version"}, folder.path()).out, "oneDNN"));
  }

  TEST_CASE("usage errors are exit code 2, say what is wrong on stderr, and print nothing else") {
    struct Wrong {
      Arguments arguments;
      std::string says;
    };
    const Wrong table[] = {
        {{}, "--config"},
        {{"train"}, "FILE is missing"},
        {{"--nonsense"},
         "--nonsense is no option of train; any key of the YAML is --set KEY=VALUE"},
        {{"nonsense"}, "nonsense is no command; `ada-train help` lists the commands"},
        {{"trian", "good.yaml", "--epochs", "3"}, "trian is no command; did you mean train? `ada"},
        {{"help", "trian"}, "help: trian is no command; did you mean train?"},
        {{"good.yaml"}, "good.yaml is no command; to train with that file: ada-train train good"},
        {{"my \"conf\" $x.yaml"},
         "to train with that file: ada-train train 'my \"conf\" $x.yaml'; `ada-train help`"},
        {{"train", "good.yaml", "--epoch", "3"},
         "ada-train: --epoch is no option of train; did you mean --epochs? `ada-train help train`"},
        {{"--config", "good.yaml", "--epoch=3", "--batchsize", "2"},
         "ada-train: --epoch is no option of train; did you mean --epochs?\n--batchsize is no "
         "option of train; did you mean --batch-size?"},
        {{"train", "good.yaml", "--max-steps", "3"},
         "--max-steps is no option of train; did you mean --set train.max_steps=VALUE?"},
        {{"train", "good.yaml", "--scaling.policy=none"},
         "did you mean --set scaling.policy=VALUE?"},
        {{"watch", "run", "--epochs", "3"},
         "--epochs is no option of watch; `ada-train help watch`"},
        {{"train", "good.yaml", "b.yaml", "c.yaml"}, "not expected after train: b.yaml c.yaml;"},
        {{"train", "good.yaml", "-c", "b.yaml"}, "good.yaml and --config b.yaml: expected one"},
        {{"train", "good.yaml", "--epochs", "many"}, "--epochs many: expected a whole number"},
        {{"train", "good.yaml", "--epochs", "0"}, "--set train.epochs: expected 1 or more"},
        {{"train", "good.yaml", "--lr", "fast"}, "--lr fast: expected a number"},
        {{"train", "good.yaml", "--policy", "adaptve"}, "adaptive"},
        {{"train", "."}, ".: is a folder; to go on with a run: --resume ."},
        {{"train", "--resume", "no/run"}, "--resume no/run: no such folder"},
        {{"train", "--resume", "."}, "--resume .: holds no config.yaml"},
        {{"train", "good.yaml", "--resume", ".", "--output", "b"}, "so does --output"},
        {{"evaluate", "good.yaml", "--best"}, "--best: good.yaml is no folder"},
        {{"evaluate", "run", "--checkpoint", "b"}, "run and --checkpoint b: expected one of them"},
        {{"evaluate"}, "--checkpoint"},
        {{"--config", "missing.yaml"}, "missing.yaml"},
        {{"--config", "good.yaml", "--threads", "many"}, "--threads"},
        {{"--config", "good.yaml", "--resume", "--overwrite"}, "--overwrite"},
        {{"--config", "good.yaml", "--set", "seed"}, "KEY=VALUE"},
        {{"--config", "good.yaml", "--set", "=3"}, "KEY=VALUE"},
        {{"--config", "good.yaml", "--set", "seeds=3"}, "seed"},
        {{"--config", "good.yaml", "--set", "scaling.underflow_traget=0.1"}, "underflow_target"},
        {{"--config", "good.yaml", "--set", "precision.format=fp17"}, "fp16"},
        {{"--config", "good.yaml", "--log-level", "loud"}, "warning"},
        {{"--config", "good.yaml", "--device", "tpu"}, "cuda"},
        {{"--config", "unknown.yaml"}, "unknown.yaml:2:1"},
        {{"--threads", "2", "models"}, "--threads stands before the command models"},
        {{"--set", "seed=2", "compare", "a", "b"}, "--set stands before the command compare"},
        {{"what-if"}, "RUN_DIR is missing"},
        {{"what-if", "--policy", "dynamic", "--set", "scaling.init_scale=8"}, "RUN_DIR is missing"},
        {{"what-if", "run", "--format", "fp17"}, "fp16"},
        {{"what-if", "run", "--scale", "0"}, "--scale 0"},
        {{"what-if", "run", "--scale", "nan"}, "--scale nan"},
        {{"what-if", "run", "--scale", "1e39"}, "--scale 1e+39"},
        {{"what-if", "run", "--set", "scaling.init_scale=8"}, "--policy"},
        {{"what-if", "run", "--policy", "dynamic", "--set", "scaling"}, "KEY=VALUE"},
        {{"what-if", "run", "more"}, "more"},
        {{"replay"}, "--preset NAME"},
        {{"replay", "--preset", "pytroch"}, "did you mean 'pytorch'"},
        {{"replay", "--preset", "jmp", "--scaling", "good.yaml"}, "so does --preset"},
        {{"replay", "--policy", "adaptive"}, "which a trace does not hold"},
        {{"replay", "a.csv", "--preset", "jmp", "--every", "5"}, "a.csv is one"},
        {{"replay", "a.csv", "--preset", "jmp", "--trace", "b.csv"}, "two traces"},
        {{"replay", "--preset", "jmp", "--column", "c"}, "--column c"},
        {{"replay", "--preset", "jmp", "--overflow", "2"}, "--overflow 2"},
        {{"replay", "--preset", "jmp", "--steps", "0"}, "--steps 0"},
        {{"replay", "--preset", "jmp", "--every", "-1"}, "--every -1"},
        {{"replay", "--preset", "jmp", "--every", "0"}, "--every 0"},
        {{"rates", "good.yaml", "--steps-per-epoch", "0"}, "--steps-per-epoch and --every: exp"},
        {{"blame", "run", "--steps", "0"}, "--steps 0: expected a whole number, 1 to 1000000"},
        {{"blame", "run", "--threads", "0"}, "--threads 0: expected a whole number, 1 to 1024"},
        {{"replay", "--preset", "jmp", "--csv", "--table"}, "--csv and --table"},
        {{"recommend"}, "RUN_DIR"},
        {{"recommend", "run", "--underflow-target", "1.5"},
         "--underflow-target 1.5: expected a share"},
        {{"recommend", "run", "--underflow-target", "nan"}, "--underflow-target nan"},
        {{"recommend", "run", "--headroom", "-1"}, "--headroom -1"},
        {{"recommend", "run", "--headroom", "two"}, "--headroom"},
        {{"compare"}, "RUN"},
        {{"compare", "run"}, "got 1 run; expected 2 to 24"},
        {{"watch"}, "RUN_DIR"},
        {{"watch", "run", "--interval", "0"}, "--interval 0"},
        {{"watch", "run", "--interval", "nan"}, "--interval nan"},
        {{"schema", "more"}, "more"},
    };
    const TempFolder folder;
    folder.Write("good.yaml", SmallRun());
    folder.Write("unknown.yaml", "seed: 1\nepoch: 3\n" + SmallRun());
    for (const Wrong& wrong : table) {
      CAPTURE(wrong.says);
      const Outcome o = Run(wrong.arguments, folder.path());
      ADA_CHECK_EXIT(o, 2);
      CHECK(Contains(o.err, wrong.says));
      CHECK(o.out.empty());
      CHECK(!folder.Has("runs"));
    }
  }

  TEST_CASE("--set takes what follows it, but not the command's folder or file") {
    const TempFolder folder;
    for (const Arguments& arguments :
         {Arguments{"what-if", "--policy", "dynamic", "--set", "scaling.init_scale=8", "no/run"},
          {"inspect", "--set", "scaling.method=abs_range", "scaling.fan=exact", "no/run"},
          {"replay", "--preset", "jmp", "--set", "scaling.init_scale=8", "no/run"}}) {
      const Outcome o = Run(arguments, folder.path());
      ADA_CHECK_EXIT(o, 3);
      CHECK(Contains(o.err, "no/run"));
      CHECK(o.out.empty());
    }
  }

  TEST_CASE("help, and help of a command, print what --help prints") {
    const TempFolder folder;
    for (const std::string command : {"", "train", "evaluate", "watch", "help"}) {
      CAPTURE(command);
      const Arguments name = command.empty() ? Arguments{} : Arguments{command};
      const Outcome o = Run(With({"help"}, name), folder.path());
      ADA_CHECK_EXIT(o, 0);
      CHECK(o.err.empty());
      CHECK(o.out == Run(With(name, {"--help"}), folder.path()).out);
    }
  }

  TEST_CASE("the configuration as operand, -c or --config; options short for keys are --set") {
    const TempFolder folder;
    folder.Write("a.yaml", SmallRun());
    const auto resolved = [&](const Arguments& arguments) {
      const Outcome o = Run(With(arguments, {"--print-config"}), folder.path());
      ADA_CHECK_EXIT(o, 0);
      return o.out;
    };
    const std::string plain = resolved({"--config", "a.yaml"});
    for (const Arguments& same : {Arguments{"train", "a.yaml"},
                                  {"train", "-c", "a.yaml"},
                                  {"-c", "a.yaml"},
                                  {"train", "--resume", "a.yaml"},
                                  {"train", "--set", "seed=3", "a.yaml"}})
      CHECK(resolved(same) == plain);
    const Arguments all = {"train",
                           "a.yaml",
                           "--set",
                           "train.epochs=5",
                           "optimizer.lr=0.5",
                           "data.batch_size=10",
                           "seed=9",
                           "scaling.policy=none",
                           "precision.format=bf16",
                           "device.threads=1",
                           "name='it''s'"};
    CHECK(resolved({"train", "a.yaml", "--epochs", "5", "--lr", "0.5", "--batch-size", "10",
                    "--seed", "9", "--policy", "none", "--format", "bf16", "--threads", "1",
                    "--name", "it's"}) == resolved(all));
    // The last one counts, whichever it is.
    const std::string five = resolved({"train", "a.yaml", "--set", "train.epochs=5"});
    CHECK(resolved({"train", "a.yaml", "--epochs", "4", "--set", "train.epochs=5"}) == five);
    CHECK(resolved({"train", "a.yaml", "--set", "train.epochs=4", "--epochs", "5"}) == five);
    const std::string files =
        std::string("name: f\ndata: {dataset: mnist, path: a}\nmodel: {zoo: lenet}\n") +
        "optimizer: {lr: 0.1}\ntrain: {epochs: 1}\n";
    folder.Write("files.yaml", files);
    CHECK(Contains(resolved({"train", "files.yaml", "--data", "else where: here"}),
                   "path: \"else where: here\""));
  }

  TEST_CASE("schema prints one JSON document that knows the keys of the YAML") {
    const TempFolder folder;
    const Outcome o = Run({"schema"}, folder.path());
    ADA_REQUIRE_EXIT(o, 0);
    CHECK(o.err.empty());
    const nlohmann::json schema = nlohmann::json::parse(o.out);
    CHECK(Contains(schema.at("$schema"), "json-schema.org"));
    for (const char* section : {"data", "model", "precision", "scaling", "log"})
      CHECK(schema.at("properties").contains(section));
  }

  TEST_CASE("--print-config prints a complete configuration that means the same") {
    const TempFolder folder;
    folder.Write("a.yaml", SmallRun());
    const Outcome first =
        Run({"--config", "a.yaml", "--set", "scaling.underflow_target=1e-4", "--threads", "3",
             "--output", "else where", "--name", "it's", "--print-config"},
            folder.path());
    ADA_REQUIRE_EXIT(first, 0);
    for (const char* line : {"underflow_target: 1.0e-04", "threads: 3", "rate: 0.2", "eps: 1.0e-05",
                             "nesterov: false"})
      CHECK(Contains(first.out, line));
    CHECK(!Contains(first.out, "growth_interval"));  // of another policy
    folder.Write("b.yaml", first.out);
    const Outcome second = Run({"--config", "b.yaml", "--print-config"}, folder.path());
    ADA_CHECK_EXIT(second, 0);
    CHECK(second.out == first.out);
    CHECK(!folder.Has("runs"));
    CHECK(!folder.Has("else where"));
  }

  TEST_CASE("--dry-run prints the layers and writes nothing") {
    const TempFolder folder;
    const Outcome o =
        Run(With(WriteConfig(folder, "run", SmallRun()), {"--dry-run"}), folder.path());
    ADA_CHECK_EXIT(o, 0);
    CHECK(Contains(o.out, "conv1  conv2d      12x12x8         216"));  // 3 * 3 * 3 * 8 parameters
    CHECK(Contains(o.out, "steps     6 an epoch, 48 in all"));
    for (const char* word : {"memory", "device", "adaptive: approx_range", "dropout"})
      CHECK(Contains(o.out, word));
    CHECK(!folder.Has("run"));
  }

  TEST_CASE("the summary is on stdout, all else of a run on stderr; log.txt has both") {
    const TempFolder folder;
    const Outcome o = Run(WriteConfig(folder, "run", SmallRun()), folder.path());
    ADA_CHECK_EXIT(o, 0);
    CHECK(o.out.starts_with("run small finished: 8 epochs, 48 steps (0 skipped) in "));
    CHECK(!Contains(o.err, "run small finished"));
    CHECK(Contains(o.err, "epoch 8  test: loss "));
    CHECK(!Contains(o.out, "epoch 8  test: loss "));
    const std::string log = ReadBytes(folder / "run/log.txt");
    CHECK(Contains(log, "info    " + o.out));
    CHECK(Contains(log, "epoch 8  test: loss "));
  }

  TEST_CASE("a run that ends within its first epoch: progress, summary and watch say the same") {
    const TempFolder folder;
    const Outcome o =
        Run(With(WriteConfig(folder, "run", SmallRun()), {"--set", "train.max_steps=4"}),
            folder.path());
    ADA_CHECK_EXIT(o, 0);
    CHECK(o.out.starts_with("run small finished in epoch 1: 4 steps (0 skipped) in "));
    CHECK(Contains(o.out, "(mean of epoch 1)"));
    const Outcome watch = Run({"watch", "run", "--once"}, folder.path());
    CHECK(Contains(watch.out, "\nstep 4/4  epoch 1  loss "));
    const Outcome more =
        Run(With(WriteConfig(folder, "more", SmallRun()), {"--set", "train.max_steps=8"}),
            folder.path());
    CHECK(Contains(more.out, "in epoch 2: 8 steps"));
  }

  TEST_CASE("--color: of messages, results and errors, before a command too") {
    const TempFolder folder;
    const Arguments run = With(WriteConfig(folder, "run", SmallRun()), {"--overwrite"});
    const Outcome always = Run(With(run, {"--color", "always"}), folder.path());
    CHECK(Contains(always.out, "run small \033[32mfinished\033[0m: "));
    CHECK(!Contains(ReadBytes(folder / "run/log.txt"), "\033"));
    CHECK(!Contains(Run(run, folder.path()).out, "\033"));  // no terminal
    CHECK(Contains(Run({"--color", "always", "watch", "no/run"}, folder.path()).err,
                   "\033[31mada-train:\033[0m no/run"));
    const Outcome wrong = Run({"watch", "--color", "sometimes", "no/run"}, folder.path());
    ADA_CHECK_EXIT(wrong, 2);
    CHECK(Contains(wrong.err, "--color sometimes: expected auto, always or never"));
  }

  TEST_CASE("--quiet is silent, --verbose says more than the default") {
    const TempFolder folder;
    const Arguments run =
        With(WriteConfig(folder, "run", SmallRun()), {"--overwrite", "--set", "train.epochs=1"});
    const Outcome quiet = Run(With(run, {"--quiet"}), folder.path());
    CHECK(quiet.err.empty());
    CHECK(quiet.out.empty());
    const Outcome plain = Run(run, folder.path()),
                  verbose = Run(With(run, {"--verbose"}), folder.path());
    CHECK(Contains(plain.out, "test accuracy"));
    CHECK(plain.err.find('\r') == std::string::npos);  // no terminal: plain lines
    CHECK(!Contains(plain.err, "checkpoint of step"));
    CHECK(Contains(verbose.err, "checkpoint of step"));
  }
}

}  // namespace
}  // namespace ada::testing
