// What a grammar is written from: nodes, one per conjunction of schemas, with alternatives of one type each.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "palimpsest/text/schema/expander.h"
#include "palimpsest/text/schema/texts.h"

namespace palimpsest::schema {

inline constexpr std::size_t kNoNode = ~std::size_t{0};

struct Property {
  std::string name;
  std::size_t node = kNoNode;
  bool required = false;
};
struct Extra {  // further properties
  Text key;
  std::size_t node = kNoNode;
};

struct Alternative {
  enum class Kind { kText, kString, kNumber, kInteger, kDigits, kArray, kSubset, kObject, kAnyArray, kAnyObject };
  Kind kind = Kind::kText;
  std::vector<std::string> texts = {};          // kText: one of them; kSubset: an array of some, in this order
  Text string = {};                             // kString
  std::shared_ptr<const Dfa> digits = nullptr;  // kDigits
  std::vector<std::size_t> prefix = {};         // kArray: the nodes of the first items
  std::size_t rest = kNoNode;                   // and of the others
  std::size_t min = 0, max = kUnbounded;        // items or properties
  std::vector<Property> properties = {};        // kObject
  std::vector<Extra> extras = {};
};

struct Nodes {
  std::vector<std::vector<Alternative>> alternatives;  // of each node; 0 is the root; none: no value
  std::vector<bool> any;                               // any JSON value
};

// Only nodes that some value is valid for have alternatives, and alternatives only such nodes. Throws SchemaError,
// TooComplex.
Nodes nodes_of(const Json& root, Session& session);

}  // namespace palimpsest::schema
