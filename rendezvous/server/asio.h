#pragma once

// What the server uses of Asio. Boost 1.74 uses std::exchange without including <utility>, so that
// goes first.
// clang-format off
#include <utility>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
// clang-format on
