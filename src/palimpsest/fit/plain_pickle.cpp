#include "palimpsest/fit/plain_pickle.h"

#include <algorithm>
#include <bit>
#include <unordered_map>
#include <utility>

#include "palimpsest/core/error.h"

namespace palimpsest {
namespace {

using Kind = PickleValue::Kind;

class PickleReader {
 public:
  PickleReader(std::span<const std::byte> bytes, const std::string& name) : left_(bytes), name_(name) {}

  PlainPickle read() {
    constexpr unsigned char kStop = '.';
    for (unsigned char op = opcode(); op != kStop; op = opcode()) step(op);
    const int root = pop();
    return {std::move(values_), root};
  }

 private:
  [[noreturn]] void damaged() const { fail("{} is damaged: its pickle makes no sense", name_); }

  unsigned char opcode() { return static_cast<unsigned char>(take(1)[0]); }
  std::span<const std::byte> take(std::size_t count) {
    if (count > left_.size()) fail("{} is damaged: its pickle ends too early", name_);
    const auto out = left_.first(count);
    left_ = left_.subspan(count);
    return out;
  }
  // Little-endian, unsigned.
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t value = 0;
    std::size_t i = 0;
    for (const std::byte byte : take(bytes)) value |= static_cast<std::uint64_t>(byte) << (8 * i++);
    return value;
  }
  std::string text(std::size_t bytes) {
    const auto from = take(bytes);
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }
  std::string line() {
    const auto end = std::ranges::find(left_, std::byte{'\n'});
    std::string out = text(static_cast<std::size_t>(end - left_.begin()));
    take(1);
    return out;
  }

  int add(PickleValue value) {
    values_.push_back(std::move(value));
    return static_cast<int>(values_.size()) - 1;
  }
  void push(int value) { stack_.push_back(value); }
  void push(PickleValue value) { push(add(std::move(value))); }
  void push_number(double value) { push({.kind = Kind::kNumber, .number = value}); }
  void push_text(std::string value) { push({.kind = Kind::kText, .text = std::move(value)}); }
  int pop() {
    if (stack_.empty() || (!marks_.empty() && stack_.size() == marks_.back())) damaged();
    const int value = stack_.back();
    stack_.pop_back();
    return value;
  }
  // Everything above the newest mark.
  std::vector<int> pop_to_mark() {
    if (marks_.empty()) damaged();
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<int> out(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return out;
  }
  void push_list(std::vector<int> items) { push({.kind = Kind::kList, .items = std::move(items)}); }
  void push_last(std::size_t count) {
    std::vector<int> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    push_list(std::move(items));
  }
  // The object below: of a list or a dictionary; others (an instance with items) ignore them.
  void add_items(const std::vector<int>& more, Kind kind) {
    if (stack_.empty() || (kind == Kind::kDict && more.size() % 2 != 0)) damaged();
    PickleValue& to = values_[static_cast<std::size_t>(stack_.back())];
    if (to.kind == kind) to.items.insert(to.items.end(), more.begin(), more.end());
  }
  void put(std::uint64_t key) {
    if (stack_.empty()) damaged();
    memo_[key] = stack_.back();
  }
  void get(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) damaged();
    push(found->second);
  }
  std::uint64_t key_of(const std::string& digits) const {
    std::uint64_t key = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9' || key > UINT32_MAX) damaged();
      key = 10 * key + static_cast<std::uint64_t>(c - '0');
    }
    return key;
  }
  void push_global(const std::string& module, const std::string& name) {
    push({.kind = Kind::kGlobal, .text = module + " " + name});
  }
  void call() {
    const int arguments = pop(), callee = pop();
    const PickleValue& of = values_[static_cast<std::size_t>(callee)];
    // A dictionary that remembers the order of its items, without any yet.
    if (of.kind == Kind::kGlobal && of.text == "collections OrderedDict" &&
        values_[static_cast<std::size_t>(arguments)].items.empty())
      return push({.kind = Kind::kDict});
    push({.kind = Kind::kCall, .items = {callee, arguments}});
  }
  void push_long(std::size_t bytes) {
    if (bytes > 8) fail("{}: a whole number of more than 64 bits is not read", name_);
    std::uint64_t value = number(bytes);
    const std::size_t bits = 8 * bytes;
    if (bytes > 0 && bytes < 8 && (value >> (bits - 1) & 1) != 0) value |= ~std::uint64_t{0} << bits;
    push_number(static_cast<double>(static_cast<std::int64_t>(value)));
  }

  void step(unsigned char op);

  std::span<const std::byte> left_;
  const std::string& name_;
  std::vector<PickleValue> values_;
  std::vector<int> stack_;
  std::vector<std::size_t> marks_;  // sizes of the stack
  std::unordered_map<std::uint64_t, int> memo_;
};

// By the names that pickletools gives them.
void PickleReader::step(unsigned char op) {
  switch (op) {
    case 0x80:  // PROTO
      return static_cast<void>(take(1));
    case 0x95:  // FRAME
      return static_cast<void>(take(8));
    case '(':  // MARK
      return marks_.push_back(stack_.size());
    case '0':  // POP
      return static_cast<void>(pop());
    case '1':  // POP_MARK
      return static_cast<void>(pop_to_mark());
    case 'N':  // NONE
      return push({});
    case 0x88:  // NEWTRUE
      return push_number(1);
    case 0x89:  // NEWFALSE
      return push_number(0);
    case 'J':  // BININT
      return push_number(static_cast<std::int32_t>(number(4)));
    case 'K':  // BININT1
      return push_number(static_cast<double>(number(1)));
    case 'M':  // BININT2
      return push_number(static_cast<double>(number(2)));
    case 0x8a:  // LONG1
      return push_long(number(1));
    case 'G': {  // BINFLOAT: big-endian
      std::uint64_t bits = 0;
      for (const std::byte byte : take(8)) bits = bits << 8 | static_cast<std::uint64_t>(byte);
      return push_number(std::bit_cast<double>(bits));
    }
    case 'U':   // SHORT_BINSTRING
    case 'C':   // SHORT_BINBYTES
    case 0x8c:  // SHORT_BINUNICODE
      return push_text(text(number(1)));
    case 'T':  // BINSTRING
    case 'B':  // BINBYTES
    case 'X':  // BINUNICODE
      return push_text(text(number(4)));
    case 0x8d:  // BINUNICODE8
    case 0x8e:  // BINBYTES8
      return push_text(text(number(8)));
    case ')':   // EMPTY_TUPLE
    case ']':   // EMPTY_LIST
    case 0x8f:  // EMPTY_SET
      return push_list({});
    case 't':   // TUPLE
    case 'l':   // LIST
    case 0x91:  // FROZENSET
      return push_list(pop_to_mark());
    case 0x85:  // TUPLE1
    case 0x86:  // TUPLE2
    case 0x87:  // TUPLE3
      return push_last(std::size_t{op} - 0x84);
    case 'a': {  // APPEND
      const int item = pop();
      return add_items({item}, Kind::kList);
    }
    case 'e':   // APPENDS
    case 0x90:  // ADDITEMS
      return add_items(pop_to_mark(), Kind::kList);
    case '}':  // EMPTY_DICT
      return push({.kind = Kind::kDict});
    case 'd': {  // DICT
      std::vector<int> items = pop_to_mark();
      push({.kind = Kind::kDict});
      return add_items(items, Kind::kDict);
    }
    case 's': {  // SETITEM
      const int value = pop(), key = pop();
      return add_items({key, value}, Kind::kDict);
    }
    case 'u':  // SETITEMS
      return add_items(pop_to_mark(), Kind::kDict);
    case 'c': {  // GLOBAL
      const std::string module = line();
      return push_global(module, line());
    }
    case 0x93: {  // STACK_GLOBAL
      const int name = pop(), module = pop();
      const std::string of = values_[static_cast<std::size_t>(module)].text;
      return push_global(of, values_[static_cast<std::size_t>(name)].text);
    }
    case 'R':   // REDUCE
    case 0x81:  // NEWOBJ
      return call();
    case 'b':  // BUILD: the state of an object, which is not read
      return static_cast<void>(pop());
    case 'Q': {  // BINPERSID
      const int id = pop();
      return push({.kind = Kind::kStored, .items = {id}});
    }
    case 'q':  // BINPUT
      return put(number(1));
    case 'r':  // LONG_BINPUT
      return put(number(4));
    case 'p':  // PUT
      return put(key_of(line()));
    case 0x94:  // MEMOIZE
      return put(memo_.size());
    case 'h':  // BINGET
      return get(number(1));
    case 'j':  // LONG_BINGET
      return get(number(4));
    case 'g':  // GET
      return get(key_of(line()));
    default:
      fail("{}: its pickle has an opcode {:#04x}, which is not one of plain values and tensors", name_, op);
  }
}

}  // namespace

int PlainPickle::find(int dict, std::string_view key) const {
  const PickleValue& of = at(dict);
  int found = -1;
  for (std::size_t i = 0; of.kind == Kind::kDict && i + 1 < of.items.size(); i += 2)
    if (at(of.items[i]).kind == Kind::kText && at(of.items[i]).text == key) found = of.items[i + 1];
  return found;
}

PlainPickle read_pickle(std::span<const std::byte> bytes, const std::string& name) {
  return PickleReader(bytes, name).read();
}

}  // namespace palimpsest
