// What tests of texts and tokens share: bytes of files, windows, and arrays in a file.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/loader.h"
#include "data/readers.h"
#include "io/tensor_files/safetensors.h"
#include "tiny_files.h"

namespace ada::data {

using Tokens = std::vector<std::int32_t>;

template <class T>
Bytes BytesOfNumbers(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(values.data());
  return Bytes(begin, begin + values.size() * sizeof(T));
}

inline Bytes TextBytes(const std::string& text) { return Bytes(text.begin(), text.end()); }

// llm.c's header, then the tokens.
template <class T>
Bytes WithHeader(std::int32_t magic, std::int32_t version, std::int32_t count,
                 const std::vector<T>& tokens) {
  std::vector<std::int32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = count;
  Bytes bytes = BytesOfNumbers(header);
  const Bytes more = BytesOfNumbers(tokens);
  bytes.insert(bytes.end(), more.begin(), more.end());
  return bytes;
}

inline FileChoices Windows(int context, double validation = 0) {
  FileChoices choices;
  choices.context = context;
  choices.validation = validation;
  return choices;
}

struct Sequence {
  Tokens tokens, targets;
};
inline Sequence ReadSequence(const Dataset& set, std::int64_t index) {
  Sequence s;
  s.tokens.resize(static_cast<std::size_t>(set.tokens->context()));
  s.targets.resize(s.tokens.size());
  set.tokens->Read(index, {s.tokens.data(), s.targets.data()});
  return s;
}

inline LoaderSpec InOrder(int batch_size) {
  LoaderSpec spec;
  spec.batch_size = batch_size;
  return spec;
}

struct NamedNumbers {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  Bytes bytes;
};

inline std::string WriteRows(const testing::TempFolder& folder,
                             const std::vector<NamedNumbers>& arrays) {
  SafetensorsWriter writer;
  for (const NamedNumbers& array : arrays)
    writer.Add(array.name, array.dtype, array.shape, std::as_bytes(std::span(array.bytes)));
  const std::string path = folder / "rows.safetensors";
  writer.WriteAtomically(path);
  return path;
}

}  // namespace ada::data
