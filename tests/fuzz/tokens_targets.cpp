// Texts, files of tokens and arrays of tokens, and what the loader makes of them.
#include <algorithm>

#include "data/batch_maker.h"
#include "data/dataset.h"
#include "data/labels.h"
#include "data/readers.h"
#include "fuzz/scratch.h"
#include "fuzz/targets.h"

namespace ada::fuzz {
namespace {

// Longer sequences are opened and then left alone.
constexpr int kBatchedTokens = 1 << 12;

void UseSequences(const data::Dataset& split, bool shuffle) {
  if (split.images() == 0 || split.height > kBatchedTokens) return;
  data::LoaderSpec spec;
  spec.batch_size = 3;
  spec.shuffle = shuffle;
  data::Batch batch;
  data::BatchMaker(split, spec).Make(0, &batch);
  const auto known = [&split](std::int32_t token) { return token >= 0 && token < split.classes; };
  Demand(std::all_of(batch.tokens.begin(), batch.tokens.end(), known),
         "a token beyond the vocabulary");
  Demand(std::all_of(batch.labels.begin(), batch.labels.end(),
                     [&](std::int32_t label) { return label == data::kNoLabel || known(label); }),
         "a target beyond the vocabulary");
  Demand(batch.terms >= 0 && batch.terms <= static_cast<std::int64_t>(batch.labels.size()),
         "more terms than targets");
}

}  // namespace

// The first byte chooses the reader and whether a share is held back, the second the context and
// whether a vocabulary is given.
void Tokens(std::string_view input) {
  static const Scratch scratch;
  const unsigned reader = TakeByte(&input), sizes = TakeByte(&input);
  data::FileChoices choices;
  choices.context = static_cast<int>(sizes & 63) + 1;
  choices.vocabulary = (sizes & 64) != 0 ? 100 : 0;
  choices.validation = (reader & 4) != 0 ? 0.25 : 0;
  choices.token_type = (reader & 8) != 0 ? data::TokenType::kUint32 : data::TokenType::kAuto;
  const std::string path = scratch.Write("input.bin", std::string(input));
  Refusable([&] {
    const data::Splits splits = reader % 4 == 3   ? data::OpenTokenTensors(path, choices)
                                : reader % 4 == 0 ? data::OpenText({path}, choices)
                                                  : data::OpenTokens({path}, choices);
    for (const data::Dataset* split : {&splits.train, &splits.validation, &splits.test}) {
      UseSequences(*split, false);
      UseSequences(*split, true);
    }
  });
}

}  // namespace ada::fuzz
