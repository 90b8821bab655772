// `datasets --preview`: the first batch of training as a picture.
#include <algorithm>
#include <ostream>

#include "core/text.h"
#include "data/image_writer.h"
#include "data/preview/sheet.h"
#include "train/assemble.h"
#include "train/run.h"

namespace ada::train {

void Preview(const config::Config& config, const std::string& path, std::ostream& out) {
  const RunData data = ReadData(config);
  data::LoaderSpec spec = TrainLoader(config, data);
  spec.batch_size = static_cast<int>(std::min<std::int64_t>(spec.batch_size, data.train.images()));
  spec.prefetch = 0;
  data::Loader loader(data.train, spec);
  const data::Batch& batch = loader.Next();
  const data::ImageShape shape = data::ImageWriter(data.train, spec).shape();
  data::WritePng(path, data::DrawSheet(batch, shape, spec, NamesOfClasses(config, data)));
  out << path << ": the first " << std::min(batch.rows, data::kMostOnSheet) << " of "
      << Counted(batch.rows, "image") << " of the first training batch, " << shape.height << "x"
      << shape.width << "x" << shape.channels << ", as the network sees them\n";
  if (!data.note.empty()) out << data.note << '\n';
  for (const std::string& line : LinesOfLeftOut(data.train, data.test)) out << line << '\n';
  for (const data::BrokenImage& broken : batch.broken)
    out << data::LeftOutText("train", broken) << '\n';
}

}  // namespace ada::train
