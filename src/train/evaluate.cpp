// The evaluate command.
#include <ostream>

#include "core/text.h"
#include "train/assemble.h"
#include "train/checkpoint.h"
#include "train/evaluator.h"
#include "train/run.h"

namespace ada::train {

void Evaluate(const config::Config& config, const std::string& checkpoint, std::ostream& out) {
  const ChosenBackend chosen = MakeBackend(config.device);
  const RunData data = ReadData(config);
  Evaluator evaluator(config, Shape{1, data.train.height, data.train.width, data.train.channels},
                      *chosen.backend, nullptr);
  LoadTensorScales(checkpoint, ReadCheckpointState(checkpoint), evaluator.graph());
  LoadCheckpointTensors(checkpoint, evaluator.graph(), nullptr, *chosen.backend);
  out << "split,images,loss,top1,top5\n";
  auto row = [&](const char* split, const data::Dataset& dataset) {
    if (dataset.images() == 0) return;
    const EvaluationResult e = evaluator.Run(dataset, EvaluationLoader(config, data));
    out << split << ',' << e.images << ',' << NineDigits(e.loss) << ',' << NineDigits(e.top1) << ','
        << NineDigits(e.top5) << '\n';
  };
  row("validation", data.validation);
  row("test", data.test);
}

}  // namespace ada::train
