// `datasets --preview`: the first batch of training as a picture.
#include <algorithm>
#include <new>
#include <ostream>

#include "data/image_writer.h"
#include "data/reports/reports.h"
#include "error.h"
#include "io/machine.h"
#include "io/text.h"
#include "run/assemble/assemble.h"
#include "run/evaluate/protect_data.h"
#include "run/memory_need.h"
#include "run/plan/plan_reports.h"

namespace ada::run {

namespace {

// The memory that the sheet needs: the images of an in-memory data set, and the batch.
struct SheetNeed {
  std::uint64_t images = 0, batch = 0;
  std::string text;
};
SheetNeed NeedOf(const config::Config& config, const data::DatasetInfo& info) {
  const std::int64_t rows = std::min<std::int64_t>(config.data.batch_size, info.train);
  const std::vector<std::int64_t> batch = {rows, info.height, info.width, info.channels};
  SheetNeed need;
  need.images = BytesOfImages(info);
  need.batch = sizeof(float);
  for (const std::int64_t side : batch) need.batch *= static_cast<std::uint64_t>(side);
  const std::string path =
      data::FactsOf(config.data.dataset).has_path() ? config.data.path : config.data.dataset;
  need.text = "the sheet needs about " + HumanBytes(need.images + need.batch) +
              " of memory: the first training batch of " + path + ", fp32 " + DimsText(batch) +
              ", " + HumanBytes(need.batch) +
              (need.images > 0 ? ", and all of its images, " + HumanBytes(need.images) : "") +
              "; use a smaller data.batch_size" + (need.images > 0 ? " or fewer images" : "");
  return need;
}

// The batch is made by the loader of training itself, so that the sheet shows what the network will
// get.
void DrawPreview(const config::Config& config, const data::DatasetInfo& info,
                 const std::string& path, std::ostream& out) {
  const RunData data = ReadData(config, info);
  ProtectFileOfData(path, data);
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
  for (const std::string& line : data.warnings) out << line << '\n';
  for (const std::string& line : LinesOfLeftOut(data.train, data.validation, data.test))
    out << line << '\n';
  for (const data::BrokenImage& broken : batch.broken)
    out << data::LeftOutText("train", broken) << '\n';
}

}  // namespace

void Preview(const config::Config& config, const std::string& path, std::ostream& out) {
  if (config.task == Task::kLanguage)
    throw ConfigError("--preview: draws images, and the task is language");
  const data::DatasetInfo info = InspectData(config);
  const SheetNeed need = NeedOf(config, info);
  const MemoryLimit limit = SmallestMemoryLimit();
  if (need.images + need.batch > limit.bytes)
    throw DeviceError("out of memory: " + HumanBytes(limit.bytes) + " can be had (" + limit.source +
                      "), and " + need.text);
  try {
    DrawPreview(config, info, path, out);
  } catch (const std::bad_alloc&) {
    throw DeviceError("out of memory: " + need.text);
  }
}

}  // namespace ada::run
