// systemd's notification protocol (sd_notify(3)), for units of Type=notify.
#pragma once

#include <string_view>

namespace palimpsest {

// Sends `state` ("READY=1", "STOPPING=1") to the socket that $NOTIFY_SOCKET names. Does nothing without it; failures
// are ignored, as by systemd's own library.
void notify_systemd(std::string_view state);

}  // namespace palimpsest
