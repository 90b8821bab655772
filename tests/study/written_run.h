// Folders of runs, written by hand: a configuration, and CSV files whose rows the test gives.
#pragma once
#include <cstdint>
#include <string>

#include "config/load.h"
#include "telemetry/run_logs.h"
#include "temp_folder.h"

namespace ada::testing {

// A finished folder: all files that every run has, with headers; `Append` adds rows.
class WrittenRun {
 public:
  // `own_data`: the YAML brings its own section `data`.
  explicit WrittenRun(const std::string& extra_yaml = "", bool own_data = false,
                      const std::string& zoo = "lenet") {
    const std::string yaml =
        "name: r\nmodel: {zoo: " + zoo + "}\noptimizer: {lr: 0.1}\n" +
        std::string(own_data ? "" : "data: {dataset: mnist, path: nowhere}\n") + extra_yaml;
    folder_.Write("config.yaml", config::ToYaml(config::LoadText(yaml, "test", {}).config));
    folder_.Write("steps.csv", telemetry::Header<telemetry::StepRow>() + "\n");
    folder_.Write("scales.csv", telemetry::Header<telemetry::ScaleRow>() + "\n");
    folder_.Write("underflow.csv", telemetry::Header<telemetry::TensorRow>() + "\n");
    folder_.Write("events.csv", telemetry::Header<telemetry::EventRow>() + "\n");
    folder_.Write("evaluation.csv", telemetry::Header<telemetry::EvaluationRow>() + "\n");
    Finish("finished");
  }
  const std::string& path() const { return folder_.path(); }
  const TempFolder& files() const { return folder_; }

  void Append(const std::string& name, const std::string& text) const {
    folder_.Write(name, folder_.Read(name) + text);
  }
  void Finish(const std::string& status) const {
    folder_.Write("summary.json", "{\"status\": \"" + status +
                                      "\", \"seconds\": 2.5, \"images_per_second\": 1000.0}\n");
  }
  void Step(std::int64_t step, const std::string& loss, const std::string& scale = "1",
            bool skipped = false) const {
    Append("steps.csv", std::to_string(step) + ",1," + loss + ",0.5,0.1," + scale + "," +
                            (skipped ? "1,1" : "0,0") + ",2\n");
  }
  void Scale(int step, const std::string& layer, const std::string& scale_out,
             const std::string& limit) const {
    Append("scales.csv", std::to_string(step) + ",1," + layer + ",adaptive,1,,,1," + scale_out +
                             "," + scale_out + "," + limit + "\n");
  }
  // `pct`: underflow_pct_nonzero; may be empty.
  void Tensor(std::int64_t step, const std::string& layer, const std::string& tensor,
              const std::string& scale, const std::string& pct) const {
    Append("underflow.csv", std::to_string(step) + ",1," + layer + "," + tensor + ",fp16," + scale +
                                ",100,0,0,0," + pct + ",0,0,0,0,0,0,0.5,2,0,1,80,10,2,,,\n");
  }

 private:
  TempFolder folder_;
};

}  // namespace ada::testing
