// The keys of the whole document: the run's name, seed and folder, the device, and all sections.
// RootSection is the table of the whole document, from which reading, writing, overrides, help and
// the schema start. Its order is that of a written config.yaml.
#include <cstdlib>

#include "config/keys/keys.h"
#include "config/sections/sections.h"
#include "data/catalog.h"
#include "io/shown_text.h"

namespace ada::config {
namespace {

// What RefuseName lets pass, but for the length.
constexpr char kNamePattern[] = R"(^(?!\.{1,2}$)[^/\u0000-\u001f]+$)";
constexpr char kNumberedDevice[] =  // cuda:0 to cuda:255
    "^cuda:([0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])$";

const EnumNames<Fp8Products> kFp8Products = {{"emulated", Fp8Products::kEmulated},
                                             {"hardware", Fp8Products::kHardware}};

// auto, cpu, cuda or cuda:N.
// The index of `cuda:N` is part of the word. Returns why it refuses, or nothing.
std::string ReadDeviceKind(const YamlNode& node, DeviceConfig& device) {
  const std::string text = node.kind == YamlNode::Kind::kScalar ? node.text : "";
  const auto set = [&](DeviceKind kind, int index) {
    device.kind = kind;
    device.index = index;
    return std::string();
  };
  if (text == "auto") return set(DeviceKind::kAuto, 0);
  if (text == "cpu") return set(DeviceKind::kCpu, 0);
  if (text == "cuda") return set(DeviceKind::kCuda, 0);
  long long index = 0;
  if (text.starts_with("cuda:") &&
      ReadInteger(Scalar(text.substr(5)), FromTo(0, 255), index).empty()) {
    return set(DeviceKind::kCuda, static_cast<int>(index));
  }
  return Expected("one of auto, cpu, cuda, cuda:N (N from 0)", node) +
         AsEnding(ForeignWordHint("device.kind", text));
}

Key DeviceKindKey(DeviceConfig& device) {
  Key key = MakeKey("kind", "word", "what computes; auto takes cuda where one works");
  key.range = "auto, cpu, cuda, cuda:N";
  key.schemas = {WordSchema({"auto", "cpu", "cuda"}), TextSchema(kNumberedDevice, false)};
  key.read = [&device](const YamlNode& node, const ReadContext& context) {
    const std::string refusal = ReadDeviceKind(node, device);
    if (!refusal.empty()) context.problems.Add(node, context.path, refusal);
  };
  key.write = [&device]() -> std::optional<YamlNode> {
    if (device.kind == DeviceKind::kAuto) return Scalar("auto");
    if (device.kind == DeviceKind::kCpu) return Scalar("cpu");
    return Scalar(device.index == 0 ? "cuda" : "cuda:" + std::to_string(device.index));
  };
  return key;
}

Section DeviceSection(DeviceConfig& device) {
  Section section;
  section.path = "device";
  section.short_key = "kind";
  section.keys = {
      DeviceKindKey(device),
      Integer("threads", device.threads, FromTo(0, 1024),
              "worker threads; 0: one per core that the process may use"),
      Switch("autotune", device.autotune,
             "cuda: measure which convolution plans are the fastest instead of asking cuDNN"),
      Switch("deterministic", device.deterministic,
             "cuda: only plans that give the same bytes in every run"),
      Choice(
          "fp8", device.fp8, kFp8Products,
          "cuda: where products of fp8_e4m3 and fp8_e5m2 are computed; hardware: in 8-bit units, "
          "whose sums keep fewer bits than fp32 (sm_89 or newer)"),
      Switch("compare", device.compare,
             "each op runs on the CPU as well; the first that differs beyond the bound is named"),
  };
  return section;
}

// A seed is an unsigned field, but keys hold 63 bits, so that every program that reads the YAML
// can.
Key SeedKey(std::uint64_t& seed) {
  return IntegerKey(
      "seed", [&seed](long long value) { seed = static_cast<std::uint64_t>(value); },
      [&seed] { return std::optional<long long>(static_cast<long long>(seed)); }, AtLeast(0),
      "key of all random numbers: weights, order of the images, augmentation, dropout");
}

}  // namespace

// The name becomes a folder below runs/, whose names have at most 255 bytes on common file systems.
std::string RefuseName(std::string& name) {
  if (name == "." || name == ".." || name.size() > 200) return "is not usable as a folder's name";
  for (char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '/' || byte < 0x20) return "a name becomes a folder: no '/' and no control characters";
  }
  return "";
}

// Checkpoints and summaries hold the configuration, as text in UTF-8.
std::string RefuseBytes(const std::string& path) {
  const std::string shown = ValidUtf8(path);
  return shown == path ? "" : "becomes '" + shown + "'; expected a path that is valid UTF-8";
}

// Expands only `~` and ${VAR}, as a shell does; `~user` and $VAR without braces are unchanged. Only
// ADA_DATA has a default (data::DataRoot), so that the shipped configurations work if it is not
// set.
std::string ExpandPath(std::string& path) {
  std::string result;
  std::size_t at = 0;
  const char* home = std::getenv("HOME");
  if (path == "~" || path.starts_with("~/")) {
    if (!home) return "`~` cannot be expanded: HOME is not set";
    result = home;
    at = 1;
  }
  while (at < path.size()) {
    const std::size_t start = path.find("${", at);
    result += path.substr(at, start - at);
    if (start == std::string::npos) break;
    const std::size_t end = path.find('}', start);
    if (end == std::string::npos) return "`${` without its `}`";
    const std::string name = path.substr(start + 2, end - start - 2);
    const char* value = std::getenv(name.c_str());
    if (!value && name != "ADA_DATA") return "the environment variable '" + name + "' is not set";
    result += name == "ADA_DATA" ? data::DataRoot() : value;
    at = end + 1;
  }
  if (result.empty()) return "expands to nothing; expected a path";
  path = result;
  return RefuseBytes(path);
}

Section RootSection(Config& config) {
  Section section;
  section.keys = {
      Integer("schema_version", config.schema_version, FromTo(1, 1),
              "of the keys in this file; this program reads version 1")
          .WrittenIf([&config] { return config.schema_version != 1; }),
      Text("name", config.name, "name of the run", RefuseName)
          .Fits(kNamePattern)
          .Default("the file's name without its ending"),
      SeedKey(config.seed),
      Text("output", config.output, "folder of the run; `~` and ${VAR} expand", ExpandPath)
          .Default("runs/<name>"),
      TaskKey(config.task),
      Nested("device", DeviceSection(config.device),
             "what computes; `device: cpu` is short for it"),
      // Data and model have no defaults that one could train with.
      Nested("data", DataSection(config.data), "images and batches").Required(),
      Nested("model", ModelSection(config.model), "the network").Required(),
      Nested("precision", PrecisionSection(config.precision),
             "number formats; `precision: fp16` is short for {format: fp16}"),
      Nested("scaling", ScalingSection(config.scaling), "loss scaling"),
      Nested("optimizer", OptimizerSection(config.optimizer), "the update rule"),
      Nested("schedule", ScheduleSection(config.schedule), "the learning rate over time"),
      Nested("train", TrainSection(config.train), "length and manner of the training"),
      Nested("evaluate", EvaluateSection(config.evaluate), "when to evaluate"),
      Nested("detection", DetectionSection(config.detection),
             "default boxes, and which detections count (task: detection)")
          .WrittenIf([&config] { return config.task == Task::kDetection; }),
      Nested("log", LogSection(config.log), "what is logged and when"),
      Nested("checkpoint", CheckpointSection(config.checkpoint), "when to save, and what to keep"),
      Nested("parallel", ParallelSection(config.parallel),
             "several processes that train one network (tools/build.sh --mpi)")
          .WrittenIf([&config] { return !(config.parallel == ParallelConfig()); }),
  };
  return section;
}

}  // namespace ada::config
