// Files are checked in parallel, some hundred at a time so that progress can be shown in between;
// findings are stored for each image and reported in order.
#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "data/images/picture.h"
#include "data/reports/reports.h"
#include "data/segmentation/label_files.h"
#include "error.h"
#include "io/hash.h"
#include "io/run_in_parallel.h"
#include "io/shown_text.h"
#include "io/text.h"

namespace ada::data {

// What was found of one image.
struct FileChecker::Looked {
  std::vector<FileFault> faults = {};  // without their split
  std::optional<PictureTraits> traits = {};
  std::string hash = {};
  std::vector<bool> classes = {};  // that its label image has
};

namespace {

constexpr std::int64_t kImagesAtOnce = 256, kImagesOfThread = 4;

// Returns what a report calls an image: its file, or its number in a set that has no files for
// single images.
std::string NameInSplit(const Dataset& dataset, std::int64_t image) {
  return dataset.store ? dataset.store->NameOf(dataset.NumberInFiles(image))
                       : dataset.name + ": image " + std::to_string(dataset.NumberInFiles(image));
}

// Calls `use`; what it throws of a file becomes a fault. False: it threw.
template <class Use>
bool Try(const std::string& file, bool ends_run, std::vector<FileFault>* faults, const Use& use) {
  try {
    use();
    return true;
  } catch (const FaultyFile& error) {
    faults->push_back({error.kind(), ends_run, "", file, error.what()});
  } catch (const DataError& error) {
    faults->push_back({FaultKind::kUnreadable, ends_run, "", file, error.what()});
  }
  return false;
}

// Whether both have the same file with this number.
bool HasSame(const Dataset* known, const Dataset& dataset, std::int64_t number) {
  return known != nullptr && known->store && number < known->store->images() &&
         known->store->NameOf(number) == dataset.store->NameOf(number);
}

// A split that was opened before may have read headers already: then they are not read again.
PictureNeeds HeaderOf(const Dataset& dataset, const Dataset* known, std::int64_t number) {
  return (HasSame(known, dataset, number) ? *known : dataset).store->HeaderOf(number);
}

PictureSize LabelSizeOf(const Dataset& dataset, const Dataset* known, std::int64_t number) {
  const bool same = HasSame(known, dataset, number) && known->label_images &&
                    known->label_images->NameOf(number) == dataset.label_images->NameOf(number);
  return (same ? *known : dataset).label_images->SizeOf(number);
}

void RequireEnd(const std::string& file) {
  if (IsCutOff(file))
    throw FaultyFile(FaultKind::kCut, file + ": the file is cut off; the picture is damaged");
}

std::string HashOfBytes(const std::vector<std::uint8_t>& bytes) {
  return HashBytes(std::as_bytes(std::span(bytes)));
}

// Adds what reading silently changes in the picture; none of these faults ends a run.
void AddTraits(const PictureTraits& traits, const PictureRules& rules, const std::string& file,
               std::vector<FileFault>* faults) {
  const auto add = [&](FaultKind kind, const std::string& text) {
    faults->push_back({kind, false, "", file, text});
  };
  if (IsClipped(traits, rules))
    add(FaultKind::kSixteenBit, "16-bit grey: values above 255 become white (data.sixteen_bit)");
  if (IsHighByteTaken(traits, rules))
    add(FaultKind::kSixteenBit, "16-bit: the high byte of each value is taken (data.sixteen_bit)");
  if (IsLeftUnturned(traits, rules))
    add(FaultKind::kExif, "EXIF orientation " + std::to_string(traits.orientation) +
                              ", which is not applied (data.exif)");
  if (traits.palette) add(FaultKind::kPalette, "a palette; its colors are taken");
  if (traits.alpha) add(FaultKind::kAlpha, "alpha, which is dropped");
}

}  // namespace

void FileChecker::CheckRange(const Dataset& dataset, const FileCheckSpec& spec, std::int64_t begin,
                             std::int64_t end, std::vector<Looked>* all) const {
  const bool ends_run = !spec.skip_broken;
  const PictureRules rules = dataset.store->rules();
  for (std::int64_t i = begin; i < end; ++i) {
    Looked& looked = (*all)[static_cast<std::size_t>(i)];
    const std::int64_t number = dataset.NumberInFiles(i);
    const std::string file = dataset.store->NameOf(number);
    PictureSize size;
    // The hash is taken before decoding, so that a duplicate of a damaged file is found as well.
    // Traits are set last: they say that all before them went well.
    const bool usable = Try(file, ends_run, &looked.faults, [&] {
      const PictureNeeds needs = HeaderOf(dataset, spec.known, number);
      size = needs.size;
      if (spec.decodes) {
        const std::vector<std::uint8_t> bytes = ReadPictureFile(file);
        looked.hash = HashOfBytes(bytes);
        DecodePicture(bytes, file, rules);
      } else {
        RequireEnd(file);
      }
      looked.traits = needs.traits;
    });
    if (usable) {
      AddTraits(*looked.traits, rules, file, &looked.faults);
      // Without `after` both sizes are empty and equal, and no size is a fault.
      const PictureSize becomes = spec.after ? spec.after(size) : spec.wanted;
      if (becomes != spec.wanted)
        looked.faults.push_back({FaultKind::kSize, true, "", file,
                                 SizeText(size) +
                                     (becomes == size ? "" : ", resized " + SizeText(becomes)) +
                                     ", and the first picture gives " + SizeText(spec.wanted)});
    }
    // The label image is looked at even where its picture cannot be used: each has faults of its
    // own.
    if (!dataset.label_images) continue;
    const std::string label = dataset.label_images->NameOf(number);
    Try(label, ends_run, &looked.faults, [&] {
      PictureSize labels;
      if (spec.decodes) {
        const Picture read = dataset.label_images->Read(number);
        labels = read.size();
        looked.classes.assign(std::size_t{kMostPixelClasses} + 1, false);
        for (const std::uint8_t value : read.pixels) looked.classes[value] = true;
      } else {
        labels = LabelSizeOf(dataset, spec.known, number);
        RequireEnd(label);
      }
      if (usable && labels != size)
        throw FaultyFile(FaultKind::kSize, OtherSizeText(dataset, number, size, labels));
    });
  }
}

void FileChecker::ReportClasses(const Dataset& dataset, const std::string& split,
                                const FileCheckSpec& spec,
                                const std::vector<std::int64_t>& of_class) {
  const char* what = dataset.label_images ? "pixel" : dataset.objects ? "box" : "picture";
  for (std::size_t k = 0; k < static_cast<std::size_t>(dataset.classes); ++k) {
    if (k < of_class.size() && of_class[k] > 0) continue;
    const std::string name = k < spec.class_names.size() ? spec.class_names[k] : "";
    // The listing of a folder reports classes without pictures by their folders' names.
    const auto same = [&](const FileFault& fault) {
      return fault.kind == FaultKind::kEmptyClass && fault.split == split && !name.empty() &&
             fault.file.ends_with("/" + name);
    };
    if (std::any_of(faults_->begin(), faults_->end(), same)) continue;  // found by the listing
    faults_->push_back({FaultKind::kEmptyClass, false, split, "",
                        "class " + (name.empty() ? std::to_string(k) : Visible(name)) + " has no " +
                            what + " in split " + split});
  }
}

void FileChecker::Report(const Dataset& dataset, const std::string& split,
                         const FileCheckSpec& spec, const std::vector<Looked>& all) {
  // Gray pictures are worth a line only among colored ones.
  const bool any_color = std::any_of(all.begin(), all.end(), [](const Looked& looked) {
    return looked.traits && !looked.traits->gray;
  });
  std::vector<std::int64_t> of_class(static_cast<std::size_t>(dataset.classes));
  std::map<std::string, std::string> hashes;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Looked& looked = all[i];
    const auto image = static_cast<std::int64_t>(i);
    for (FileFault fault : looked.faults) {
      fault.split = split;
      faults_->push_back(std::move(fault));
    }
    if (looked.traits && looked.traits->gray && any_color)
      faults_->push_back({FaultKind::kGray, false, split, NameInSplit(dataset, image),
                          "grey, and others have colors"});
    if (!looked.hash.empty()) {
      const std::string name = NameInSplit(dataset, image);
      const auto other = by_hash_.find(looked.hash);
      if (other != by_hash_.end())
        faults_->push_back(
            {FaultKind::kDuplicate, false, split, name, "the same as " + other->second});
      hashes.emplace(looked.hash, name + " of split " + split);
    }
    for (std::size_t k = 0; k < of_class.size(); ++k)
      of_class[k] += k < looked.classes.size() && looked.classes[k] ? 1 : 0;
    if (dataset.objects)
      for (const auto& box :
           (*dataset.objects)[static_cast<std::size_t>(dataset.NumberInFiles(image))].boxes)
        ++of_class[static_cast<std::size_t>(box.label)];
    if (dataset.task() == Task::kClassification && dataset.labels[i] < of_class.size())
      ++of_class[dataset.labels[i]];
  }
  // Hashes join those of other splits only here: the same file twice in one split is no fault.
  by_hash_.merge(hashes);
  if (dataset.images() > 0 && (spec.decodes || !dataset.label_images))
    ReportClasses(dataset, split, spec, of_class);
}

void FileChecker::Check(const Dataset& dataset, const std::string& split,
                        const FileCheckSpec& spec) {
  // Opening a text or an array of tokens has looked at what can be wrong with it.
  if (dataset.tokens) return;
  std::vector<Looked> all(static_cast<std::size_t>(dataset.images()));
  // Sets whose images lie in memory are only hashed, from their bytes or their fp32 values: there
  // is no file of a single image that could be damaged.
  const bool in_files = FactsOf(dataset.name).decodes();
  const std::uint8_t* const bytes = in_files || !spec.decodes ? nullptr : dataset.bytes();
  const std::byte* const floats = bytes != nullptr || in_files || !spec.decodes || !dataset.store
                                      ? nullptr
                                      : dataset.store->Floats();
  for (std::int64_t first = 0; first < dataset.images(); first += kImagesAtOnce) {
    const std::int64_t count = std::min(kImagesAtOnce, dataset.images() - first);
    RunRangesInParallel(count, kImagesOfThread, [&](std::int64_t begin, std::int64_t end) {
      if (in_files) return CheckRange(dataset, spec, first + begin, first + end, &all);
      const auto size = static_cast<std::size_t>(dataset.per_image());
      for (std::int64_t i = first + begin; i < first + end; ++i) {
        std::string& hash = all[static_cast<std::size_t>(i)].hash;
        if (bytes != nullptr)
          hash = HashBytes(std::as_bytes(std::span(bytes + i * dataset.per_image(), size)));
        else if (floats != nullptr)
          hash = HashBytes(
              {floats + static_cast<std::size_t>(dataset.NumberInFiles(i)) * size * sizeof(float),
               size * sizeof(float)});
      }
    });
    if (spec.progress) spec.progress(first + count);
  }
  Report(dataset, split, spec, all);
}

}  // namespace ada::data
