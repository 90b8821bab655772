// The real CamVid and a real set of boxes, where ADA_TEST_CAMVID and ADA_TEST_VOC name their
// folders.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>

#include "data/batch_maker.h"
#include "data/readers.h"
#include "data/segmentation/label_files.h"
#include "skip.h"
#include "vision/coder.h"

namespace ada::data {

TEST_SUITE("cpu") {
  TEST_CASE("real CamVid: every label image fits, and the weights of its classes") {
    const char* folder = std::getenv("ADA_TEST_CAMVID");
    if (folder == nullptr) ADA_SKIP("ADA_TEST_CAMVID names no folder");
    const Splits splits = OpenCamvid(folder, {});
    CHECK(splits.train.images() == 367);
    CHECK(splits.test.images() == 233);
    CHECK(splits.note.empty());
    RequireLabelSizes(splits.train, false);
    RequireLabelSizes(splits.test, false);
    std::vector<int> unseen;
    const std::vector<double> weights =
        MedianFrequencyWeights(splits.train, UnseenClass::kWeightOne, &unseen);
    CHECK(unseen.empty());
    CHECK(weights[4] == 1);  // pavement has the median frequency
    CHECK(weights[10] > weights[2]);
    for (std::int64_t i = 0; i < splits.test.images(); ++i) splits.test.label_images->Read(i);
  }

  TEST_CASE("real boxes: annotations, what is left out, and batches for SSD300") {
    const char* folder = std::getenv("ADA_TEST_VOC");
    if (folder == nullptr) ADA_SKIP("ADA_TEST_VOC names no folder");
    const Splits splits = OpenVoc(folder, {});
    CHECK(splits.train.images() > 0);
    LoaderSpec spec;
    spec.batch_size = 8;
    spec.workers = 0;
    spec.changes.resize.to = {300, 300};
    spec.changes.ssd = SsdChangesSpec{};
    spec.coder = std::make_shared<vision::BoxCoder>(vision::Ssd300Boxes());
    BatchMaker maker(splits.train, spec);
    Batch batch;
    maker.Make(0, &batch);
    CHECK(batch.labels.size() == 8 * 8732);
    CHECK(batch.terms > 0);
    for (const float value : batch.locations) REQUIRE(std::isfinite(value));
  }
}

}  // namespace ada::data
