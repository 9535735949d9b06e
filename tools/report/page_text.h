// The files of tools/report/page, as CMake embeds them.
#pragma once

#include <string_view>

namespace stowage::report {

extern const std::string_view page_html;  // with {{slots}} for what plan_report fills in
extern const std::string_view page_style;
extern const std::string_view page_script;  // all of the page's scripts, in order

}  // namespace stowage::report
