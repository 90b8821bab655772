// What was counted, and what is to be changed, as every command's JSON has them.
#include "study/advise/run_record.h"

namespace ada::study {

OrderedJson LostJson(const RunRecord& record) {
  return LostJson(record.layers, CoverageOf(record));
}

OrderedJson AdviceJson(const std::vector<Advice>& all) {
  OrderedJson list = OrderedJson::array();
  for (const Advice& advice : all) {
    OrderedJson keys = OrderedJson::object();
    for (const auto& [key, value] : advice.keys) keys[key] = value;
    list.push_back({{"section", advice.section},
                    {"keys", keys},
                    {"reason", advice.reason},
                    {"sure", advice.sure},
                    {"mends", advice.mends}});
  }
  return list;
}

}  // namespace ada::study
