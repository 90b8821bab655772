// The keys of `data.augment.mixup` and `data.augment.cutmix`.
// mixup: Zhang et al., ICLR 2018; cutmix: Yun et al., ICCV 2019. A batch is mixed in one of the two
// ways or not at all, so the shares of batches add up to at most 1.
#include "config/sections/sections.h"

namespace ada::config {
namespace {

Section MixSection(const char* path, MixConfig& mix) {
  Section section;
  section.path = path;
  section.keys = {
      Number("alpha", mix.alpha, AtLeast(0),
             "the first image's share is drawn from Beta(alpha, alpha); 0: never"),
      Number("p", mix.p, FromTo(0, 1), "share of the batches")
          .Default("1; 0.5 where mixup and cutmix are both on"),
  };
  return section;
}

}  // namespace

std::vector<Key> MixingKeys(AugmentConfig& augment) {
  const auto key = [](const char* name, const char* path, MixConfig& mix, const char* meaning) {
    Key made = Nested(name, MixSection(path, mix), meaning);
    // A section whose alpha is 0 does nothing, whatever its p is.
    made.WrittenIf([&mix] { return mix.alpha > 0; });
    return made;
  };
  return {key("mixup", "data.augment.mixup", augment.mixup,
              "blend each image of a batch with another, and their labels"),
          key("cutmix", "data.augment.cutmix", augment.cutmix,
              "paste a box of another image into each image of a batch, and mix their labels")};
}

void CheckMixing(AugmentConfig& augment, const YamlNode& map, const ReadContext& context) {
  MixConfig &mixup = augment.mixup, &cutmix = augment.cutmix;
  if (mixup.alpha == 0 || cutmix.alpha == 0) return;
  const auto given = [&](const char* name) {
    const YamlNode* section = map.Find(name);
    return section != nullptr && section->Find("p") != nullptr;
  };
  // A share that is not given is what the other leaves; where neither is given each has one half.
  if (!given("mixup")) mixup.p = given("cutmix") ? 1 - cutmix.p : 0.5;
  if (!given("cutmix")) cutmix.p = 1 - mixup.p;
  if (mixup.p + cutmix.p <= 1) return;
  context.problems.Add(*map.Find("cutmix"), Join(context.path, "cutmix"),
                       "mixup.p and cutmix.p together must be at most 1: a batch is mixed one way");
}

}  // namespace ada::config
