// What pages that commands write have in common: HTML with SVG pictures within, which needs no
// other file and no script.
#pragma once
#include <string>

namespace ada::study {

inline constexpr int kPageWidth = 860;  // of a picture
// Text of a name, which may come from a file, as HTML.
std::string Html(const std::string& text);
// The page up to its heading. Its style makes rows of class `taken` and paragraphs of class
// `verdict` stand out.
std::string PageHead(const std::string& title, const std::string& heading);
inline constexpr char kPageEnd[] = "</body></html>\n";

}  // namespace ada::study
