#include "study/run_files.h"

#include <filesystem>
#include <system_error>

#include "config/load.h"
#include "core/error.h"
#include "study/run_file.h"

namespace ada::study {

bool HasFile(const std::string& folder, const std::string& name) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(folder + "/" + name, ignored);
}

config::Config ReadRunConfig(const std::string& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    throw DataError(folder + ": no such folder; expected the folder of a run");
  }
  if (!HasFile(folder, "config.yaml")) {
    throw DataError(folder +
                    ": holds no run, config.yaml is missing; expected the folder that a "
                    "run of ada-train wrote");
  }
  return config::Load(folder + "/config.yaml", {}).config;
}

void ReadSteps(const std::string& folder,
               const std::function<void(const telemetry::StepRow&)>& row) {
  RunFile file(folder, "steps.csv");
  const Place place(file);
  const auto loss = file.Column("loss"), accuracy = file.Optional("accuracy");
  const auto lr = file.Optional("lr"), scale = file.Optional("scale");
  const auto overflow = file.Optional("overflow"), skipped = file.Optional("skipped");
  const auto grad_norm = file.Optional("grad_norm");
  telemetry::StepRow read;
  while (file.Next()) {
    place.Read(file, read);
    read.loss = file.Number(loss);
    read.accuracy = file.Number(accuracy);
    read.lr = file.Number(lr);
    read.scale = file.Scale(scale);
    read.overflow = file.Integer(overflow) != 0;
    read.skipped = file.Integer(skipped) != 0;
    read.grad_norm = file.Number(grad_norm);
    row(read);
  }
}

void ReadEvaluations(const std::string& folder,
                     const std::function<void(const telemetry::EvaluationRow&)>& row) {
  RunFile file(folder, "evaluation.csv");
  const Place place(file);
  const auto split = file.Column("split"), images = file.Optional("images");
  const auto loss = file.Column("loss"), top1 = file.Column("top1"), top5 = file.Optional("top5");
  telemetry::EvaluationRow read;
  while (file.Next()) {
    place.Read(file, read);
    read.split = file.Text(split);
    read.images = file.Integer(images);
    read.loss = file.Number(loss);
    read.top1 = file.Number(top1);
    read.top5 = file.Number(top5);
    row(read);
  }
}

void ReadEvents(const std::string& folder,
                const std::function<void(const telemetry::EventRow&)>& row) {
  RunFile file(folder, "events.csv");
  const Place place(file);
  const auto event = file.Column("event"), layer = file.Optional("layer");
  const auto tensor = file.Optional("tensor"), value = file.Optional("value");
  const auto message = file.Optional("message");
  telemetry::EventRow read;
  while (file.Next()) {
    place.Read(file, read);
    read.event = file.Text(event);
    read.layer = file.Text(layer);
    read.tensor = file.Text(tensor);
    read.value = file.Text(value);
    read.message = file.Text(message);
    row(read);
  }
}

}  // namespace ada::study
