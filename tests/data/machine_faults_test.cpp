// A machine that does not open files, or gives no memory, is no broken picture: under every choice
// of data.on_broken it is an error of the machine, and nothing is remembered of it.
#include <doctest/doctest.h>
#include <malloc.h>

#include <functional>
#include <map>
#include <string>

#include "data/batch_maker.h"
#include "data/detection/voc_files.h"
#include "data/images/picture.h"
#include "data/input_file.h"
#include "data/readers.h"
#include "data/segmentation/label_files.h"
#include "data/tensors/tensor_file.h"
#include "io/text.h"
#include "resource_limits.h"
#include "sanitizer.h"
#include "skip.h"
#include "tiny_truth.h"

namespace ada::data {
namespace {

using Call = std::function<void()>;

FileChoices Skipping() {
  FileChoices choices;
  choices.skip_broken = true;
  return choices;
}

void PutFolder(const std::string& base) {
  for (const char* split : {"/train", "/val"})
    for (const char* name : {"/a/1.png", "/a/2.png", "/b/1.png"})
      PutPicture(base + split + name, TinyPicture(12, 14, 3, 1));
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE(
      "machine faults: without descriptors every reader of data says so, and names the file") {
    const testing::TempFolder folder;
    PutVoc(folder / "voc", 2);
    const testing::TempFolder pixels;
    PutCamvid(pixels, 2, 8, 8);
    PutFolder(folder / "photos");
    const Splits camvid = OpenCamvid(pixels.path(), {});
    // Headers are remembered: without descriptors a reader of headers gets a set that none has
    // read.
    const std::array<Splits, 2> for_first = {OpenFolder(folder / "photos"),
                                             OpenFolder(folder / "photos")},
                                for_all = {OpenFolder(folder / "photos"),
                                           OpenFolder(folder / "photos")},
                                for_labels = {OpenCamvid(pixels.path(), {}),
                                              OpenCamvid(pixels.path(), {})};
    std::size_t turn = 0;  // 1: without descriptors
    const std::string png = folder / "photos/train/a/1.png";
    std::vector<BrokenImage> left_out;
    const std::map<std::string, Call> readers = {
        {"ReadPicture", [&] { ReadPicture(png); }},
        {"SizeInPictureFile", [&] { SizeInPictureFile(png); }},
        {"ReadLabelPng", [&] { ReadLabelPng(pixels / "testannot/100.png"); }},
        {"ReadAnnotation", [&] { ReadAnnotation(folder / "voc/Annotations/test100.xml"); }},
        {"InputFile", [&] { const InputFile file(png, "advice"); }},
        {"MappedFile", [&] { const MappedFile mapped(png); }},
        {"OpenFolder", [&] { OpenFolder(folder / "photos"); }},
        {"OpenCamvid", [&] { OpenCamvid(pixels.path(), Skipping()); }},
        {"OpenVoc", [&] { OpenVoc(folder / "voc", Skipping()); }},
        {"SizeOfFirst", [&] { SizeOfFirst(for_first[turn].train, true); }},
        {"RequireOneSize",
         [&] {
           RequireOneSize(
               for_all[turn].train, {12, 14}, [](PictureSize s) { return s; }, true);
         }},
        {"RequireLabelSizes", [&] { RequireLabelSizes(for_labels[turn].train, false); }},
        {"MedianFrequencyWeights",
         [&] {
           MedianFrequencyWeights(camvid.train, UnseenClass::kWeightOne, nullptr, &left_out);
         }},
    };
    for (const auto& [name, read] : readers) {
      CAPTURE(name);
      turn = 0;
      read();
      turn = 1;
      const testing::NoDescriptors limit;
      const std::string said = MessageOf<DeviceError>("no such folder", read);
      CHECK(said.find("Too many open files; raise the limit") != std::string::npos);
      CHECK((said.starts_with(folder.path()) || said.starts_with(pixels.path())));
    }
    CHECK(left_out.empty());
  }

  TEST_CASE("machine faults: an encoding that cannot be loaded is not an unknown one") {
    // The C library reads its list of encodings once, and remembers which it could not load.
    CHECK(ToUtf8("\xE9", "iso-8859-1").text == "é");
    const testing::NoDescriptors limit;
    const std::string said =
        MessageOf<DeviceError>("no such folder", [] { ToUtf8("\xC1", "koi8-u"); });
    CHECK(said.starts_with("the encoding koi8-u cannot be loaded: Too many open files; raise"));
  }

  TEST_CASE("machine faults: a picture that was not opened once is not left out for good") {
    const testing::TempFolder folder;
    PutFolder(folder.path());
    const Splits splits = OpenFolder(folder.path());
    LoaderSpec spec;
    spec.batch_size = 3;
    spec.changes.resize.to = {8, 8};
    Batch whole, batch;
    BatchMaker(splits.train, spec).Make(0, &whole);
    for (const OnBroken what : {OnBroken::kFail, OnBroken::kReplace, OnBroken::kLeaveOut}) {
      spec.on_broken = what;
      BatchMaker maker(splits.train, spec);
      {
        const testing::NoDescriptors limit;
        CHECK(MessageOf<DeviceError>(folder.path(), [&] {
                maker.Make(0, &batch);
              }).starts_with("DIR/train/a/1.png: cannot be opened: Too many open files; "));
      }
      maker.Make(0, &batch);
      CHECK(batch.broken.empty());
      CHECK(batch.images == whole.images);
    }
  }

  TEST_CASE("machine faults: no memory to read, decode or resize a picture") {
    if (testing::kShadowMemory) ADA_SKIP("built under a sanitizer, which takes memory of its own");
    const testing::TempFolder folder;
    // More than the 64 MiB that glibc keeps at hand for each thread that ever allocated.
    const int height = 6000, width = 4000;
    PutPicture(folder / "train/a/1.png", TinyPicture(height, width, 3, 1));
    PutPicture(folder / "val/a/1.png", TinyPicture(height, width, 3, 1));
    PutPicture(folder / "labels.png", TinyPicture(height, width, 1, 1));
    PutText(folder / "a.xml", TinyXml(3, 4, std::vector<TinyObject>(20000, {"cat", 1, 1, 2, 2})));
    const Splits splits = OpenFolder(folder.path());
    const std::string path = folder / "train/a/1.png";
    const auto refused = [&](const Call& call) {
      return MessageOf<DeviceError>(folder.path(), call);
    };
    LoaderSpec spec;
    spec.batch_size = 1;
    spec.changes.resize.to = {height + 1, width};
    spec.on_broken = OnBroken::kLeaveOut;
    BatchMaker maker(splits.train, spec);
    Batch batch;
    int decodings = 0, rows = 0;
    for (const std::uint64_t mebibytes : {1, 10, 30, 50, 90, 130, 250}) {
      CAPTURE(mebibytes);
      std::string decoded, labels, boxes, row;
      maker.Begin(0, &batch);
      malloc_trim(0);  // what was used before is not at hand
      {
        const testing::NoMemoryBeyond limit(mebibytes << 20);
        decoded = refused([&] { ReadPicture(path); });
        labels = refused([&] { ReadLabelPng(folder / "labels.png"); });
        boxes = refused([&] { ReadAnnotation(folder / "a.xml"); });
        row = refused([&] { maker.MakePart(0, 0, &batch); });
      }
      decodings += !decoded.empty();
      rows += !row.empty();
      for (const auto& [said, file] : {std::pair(decoded, "DIR/train/a/1.png"),
                                       {labels, "DIR/labels.png"},
                                       {boxes, "DIR/a.xml"},
                                       {row, "DIR/train/a/1.png"}})
        if (!said.empty()) CHECK(said.starts_with(std::string(file) + ": there is no memory to "));
    }
    CHECK(decodings > 0);
    CHECK(rows > 0);
    CHECK(ReadPicture(path).height == height);
    maker.Make(0, &batch);
    CHECK(batch.broken.empty());
    CHECK(batch.rows == 1);
  }
}

}  // namespace ada::data
