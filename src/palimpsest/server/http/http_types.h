// The HTTP library's types by name: its header takes seconds to compile.
#pragma once

namespace httplib {
class Server;
struct Request;
struct Response;
}  // namespace httplib
