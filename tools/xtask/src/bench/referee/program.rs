// SPDX-License-Identifier: GPL-2.0
//! The programs that the referee runs, and what of them is counted.

use clap::ValueEnum;

use super::profile::{Function, Profile, BUILT_IN, USER};

/// A program with its parameters, as `referee.sh` knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Program {
    /// 64 bytes there and 64 back: sockperf, or `peer` within one kernel.
    #[value(name = "pingpong_64b")]
    Pingpong64b,
    /// 4 KiB there and 4 KiB back, by the same.
    #[value(name = "pingpong_4k")]
    Pingpong4k,
    /// Messages of 64 bytes one way, by the same.
    #[value(name = "stream_64b")]
    Stream64b,
    /// Messages of 4 KiB one way, by the same.
    #[value(name = "stream_4k")]
    Stream4k,
    /// One stream: iperf3, or `peer` within one kernel.
    Bulk,
    /// `peer`: 16 streams.
    #[value(name = "bulk_16")]
    Bulk16,
    /// iperf3 within one kernel: one stream.
    #[value(name = "iperf3")]
    Iperf3,
    /// Connections one after another.
    Connections,
    /// The kernel's memory of a connection that does nothing.
    Idle,
    /// Connections that fall back to TCP: there is no RDMA device.
    Fallback,
    /// As `Pingpong64b`, after a fallback.
    #[value(name = "fallback_pingpong_64b")]
    FallbackPingpong64b,
    /// As `Stream64b`, after a fallback.
    #[value(name = "fallback_stream_64b")]
    FallbackStream64b,
    /// As `Bulk`, after a fallback.
    FallbackBulk,
    /// redis: GET by one client.
    #[value(name = "redis_1")]
    Redis1,
    /// redis: GET by 64 clients.
    #[value(name = "redis_64")]
    Redis64,
    /// redis: GET by 512 clients.
    #[value(name = "redis_512")]
    Redis512,
    /// redis: GET by 16 clients, sixteen requests at a time.
    RedisPipelined,
    /// nginx and wrk: a small page by 16 connections that stay.
    #[value(name = "nginx_16")]
    Nginx16,
    /// nginx and wrk: a small page by 1,000 connections that stay.
    #[value(name = "nginx_1000")]
    Nginx1000,
    /// nginx and wrk: a connection for each page.
    NginxNew,
    /// nginx and wrk: pages of 100 kB.
    NginxLarge,
    /// nginx and h2load: HTTP/2, 32 streams at a time by each of four connections.
    Http2,
    /// memcached and memcslap: values are read by eight clients.
    Memcached,
    /// PostgreSQL and pgbench: one SELECT after another by each of eight clients.
    Pgbench,
}

impl Program {
    /// Those for connections within one kernel.
    pub(super) const SAME_HOST: &'static [Self] = &[
        Self::Pingpong64b,
        Self::Pingpong4k,
        Self::Stream64b,
        Self::Stream4k,
        Self::Bulk,
        Self::Bulk16,
        Self::Connections,
        Self::Idle,
        Self::Iperf3,
        Self::Redis1,
        Self::Redis64,
        Self::Redis512,
        Self::RedisPipelined,
        Self::Nginx16,
        Self::Nginx1000,
        Self::NginxNew,
        Self::NginxLarge,
        Self::Http2,
        Self::Memcached,
        Self::Pgbench,
    ];

    /// The others.
    pub(super) const BETWEEN_KERNELS: &'static [Self] = &[
        Self::Pingpong64b,
        Self::Pingpong4k,
        Self::Stream64b,
        Self::Stream4k,
        Self::Bulk,
        Self::Connections,
        Self::Fallback,
        Self::FallbackPingpong64b,
        Self::FallbackStream64b,
        Self::FallbackBulk,
    ];

    /// Returns its name in the report and as an argument of the script.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::Pingpong64b => "pingpong_64b",
            Self::Pingpong4k => "pingpong_4k",
            Self::Stream64b => "stream_64b",
            Self::Stream4k => "stream_4k",
            Self::Bulk => "bulk",
            Self::Bulk16 => "bulk_16",
            Self::Iperf3 => "iperf3",
            Self::Idle => "idle",
            Self::Connections => "connections",
            Self::Fallback => "fallback",
            Self::FallbackPingpong64b => "fallback_pingpong_64b",
            Self::FallbackStream64b => "fallback_stream_64b",
            Self::FallbackBulk => "fallback_bulk",
            Self::Redis1 => "redis_1",
            Self::Redis64 => "redis_64",
            Self::Redis512 => "redis_512",
            Self::RedisPipelined => "redis_pipelined",
            Self::Nginx16 => "nginx_16",
            Self::Nginx1000 => "nginx_1000",
            Self::NginxNew => "nginx_new",
            Self::NginxLarge => "nginx_large",
            Self::Http2 => "http2",
            Self::Memcached => "memcached",
            Self::Pgbench => "pgbench",
        }
    }

    /// Returns the key of its figure in the report.
    pub(super) fn figure_key(self) -> &'static str {
        match self {
            Self::Pingpong64b => "pingpong_64b_us",
            Self::Pingpong4k => "pingpong_4k_us",
            Self::Stream64b => "stream_64b_per_s",
            Self::Stream4k => "stream_4k_per_s",
            Self::Bulk => "bulk_gbps",
            Self::Bulk16 => "bulk_16_gbps",
            Self::Iperf3 => "iperf3_gbps",
            Self::Idle => "idle_conn_kib",
            Self::Connections => "conns_per_s",
            Self::Fallback => "fallback_conns_per_s",
            Self::FallbackPingpong64b => "fallback_pingpong_64b_us",
            Self::FallbackStream64b => "fallback_stream_64b_per_s",
            Self::FallbackBulk => "fallback_bulk_gbps",
            Self::Redis1 => "redis_1_per_s",
            Self::Redis64 => "redis_64_per_s",
            Self::Redis512 => "redis_512_per_s",
            Self::RedisPipelined => "redis_pipelined_per_s",
            Self::Nginx16 => "nginx_16_per_s",
            Self::Nginx1000 => "nginx_1000_per_s",
            Self::NginxNew => "nginx_new_per_s",
            Self::NginxLarge => "nginx_large_per_s",
            Self::Http2 => "http2_per_s",
            Self::Memcached => "memcached_per_s",
            Self::Pgbench => "pgbench_per_s",
        }
    }

    /// Returns the description of its figure, with the unit.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Pingpong64b => "64 B ping-pong, us one way",
            Self::Pingpong4k => "4 KiB ping-pong, us one way",
            Self::Stream64b => "64 B messages one way/s",
            Self::Stream4k => "4 KiB messages one way/s",
            Self::Bulk => "bulk, one stream, Gb/s",
            Self::Bulk16 => "bulk, 16 streams, Gb/s",
            Self::Iperf3 => "iperf3, one stream, Gb/s",
            Self::Idle => "idle connection, KiB",
            Self::Connections => "connections/s",
            Self::Fallback => "connections/s after fallback",
            Self::FallbackPingpong64b => "64 B ping-pong after fallback",
            Self::FallbackStream64b => "64 B messages/s after fallback",
            Self::FallbackBulk => "iperf3 after fallback, Gb/s",
            Self::Redis1 => "redis, 1 client, requests/s",
            Self::Redis64 => "redis, 64 clients, requests/s",
            Self::Redis512 => "redis, 512 clients, requests/s",
            Self::RedisPipelined => "redis, pipelines, requests/s",
            Self::Nginx16 => "nginx, 16 connections, pages/s",
            Self::Nginx1000 => "nginx, 1,000 connections, pages/s",
            Self::NginxNew => "nginx, connections/s",
            Self::NginxLarge => "nginx, 100 kB, pages/s",
            Self::Http2 => "nginx, HTTP/2, pages/s",
            Self::Memcached => "memcached, requests/s",
            Self::Pgbench => "PostgreSQL, transactions/s",
        }
    }

    /// Returns what is counted per what.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Pingpong64b => "request and answer of 64 B",
            Self::Pingpong4k => "message of 4 KiB",
            Self::Stream64b => "64 B message one way",
            Self::Stream4k => "4 KiB message one way",
            Self::Bulk => "MiB of bulk",
            Self::Bulk16 => "MiB of 16 streams",
            Self::Iperf3 => "MiB of iperf3",
            Self::Idle => "KiB of idle connections",
            Self::Connections => "connection",
            Self::Fallback => "connection after fallback",
            Self::FallbackPingpong64b => "request and answer after fallback",
            Self::FallbackStream64b => "64 B message after fallback",
            Self::FallbackBulk => "MiB after fallback",
            Self::Redis1 => "request of redis_1",
            Self::Redis64 => "request of redis_64",
            Self::Redis512 => "request of redis_512",
            Self::RedisPipelined => "request of redis_pipelined",
            Self::Nginx16 => "page of nginx_16",
            Self::Nginx1000 => "page of nginx_1000",
            Self::NginxNew => "page of nginx_new",
            Self::NginxLarge => "page of nginx_large",
            Self::Http2 => "page of http2",
            Self::Memcached => "request of memcached",
            Self::Pgbench => "transaction of pgbench",
        }
    }

    /// Returns how many units there were: by the system calls of the programs, or by what they say they did, in bytes
    /// or requests.
    pub(super) fn units(self, profile: &Profile, said: f64) -> f64 {
        let calls = |name: &str| profile.calls(|f| f.name == name && f.module == BUILT_IN) as f64;
        match self {
            _ if self.is_bulk() => said / f64::from(1 << 20),
            _ if said > 0.0 => said,
            Self::Pingpong64b | Self::FallbackPingpong64b => calls("__sys_sendto") / 2.0,
            Self::Pingpong4k | Self::Stream64b | Self::Stream4k | Self::FallbackStream64b => {
                calls("__sys_sendto")
            }
            Self::Connections | Self::Fallback => calls("__sys_connect"),
            _ => said,
        }
    }

    /// Whether its units are MiB.
    fn is_bulk(self) -> bool {
        matches!(
            self,
            Self::Bulk | Self::Bulk16 | Self::Iperf3 | Self::FallbackBulk
        )
    }

    /// Returns the figure: so many units took so long, in nanoseconds of the guest.
    pub(super) fn figure(self, units: f64, ns: f64) -> f64 {
        match self {
            Self::Pingpong64b | Self::FallbackPingpong64b => ns / 1e3 / units / 2.0,
            Self::Pingpong4k => ns / 1e3 / units,
            _ if self.is_bulk() => units * f64::from(1 << 20) * 8.0 / ns,
            Self::Idle => units,
            _ => units * 1e9 / ns,
        }
    }
}

/// Something that is counted.
pub(super) struct Quantity {
    pub(super) key: &'static str,
    pub(super) words: &'static str,
    pub(super) count: fn(&Profile) -> u64,
}

/// What is counted, in the order of the table. Both modules are counted at the kernel's functions that they call.
pub(super) const QUANTITIES: &[Quantity] = &[
    Quantity {
        key: "packets",
        words: "packets, there and back",
        count: |p| calls(p, "veth_xmit"),
    },
    Quantity {
        key: "acks",
        words: "of these, acknowledgements of RoCE",
        count: |p| calls(p, "prepare_ack_packet"),
    },
    Quantity {
        key: "work_requests",
        words: "work requests to send",
        // Soft RoCE's requester completes each; its responder has a function of this name, too.
        count: |p| calls(p, "do_complete"),
    },
    Quantity {
        key: "post_send_calls",
        words: "calls to post them",
        count: |p| calls(p, "rxe_post_send"),
    },
    Quantity {
        key: "post_recv_calls",
        words: "calls to post receives",
        count: |p| calls(p, "rxe_post_recv"),
    },
    Quantity {
        key: "completions",
        words: "completions",
        count: |p| calls(p, "rxe_cq_post"),
    },
    Quantity {
        key: "cq_runs",
        words: "runs of completion queues",
        count: |p| p.calls(is_cq_run),
    },
    Quantity {
        key: "cq_polls",
        words: "polls of completion queues",
        count: |p| calls(p, "rxe_poll_cq"),
    },
    Quantity {
        key: "cq_arms",
        words: "requests to be notified",
        count: |p| calls(p, "rxe_req_notify_cq"),
    },
    Quantity {
        key: "cdc_received",
        words: "CDC messages received",
        count: |p| p.calls(is_cdc_handler),
    },
    Quantity {
        key: "softirqs",
        words: "runs of softirqs",
        count: |p| calls(p, "handle_softirqs"),
    },
    Quantity {
        key: "wakeups",
        words: "wake-ups of tasks tried",
        count: |p| calls(p, "try_to_wake_up"),
    },
    Quantity {
        key: "switches",
        words: "switches of tasks",
        count: |p| calls(p, "finish_task_switch"),
    },
    Quantity {
        key: "system_calls",
        words: "system calls",
        count: |p| calls(p, "do_syscall_64"),
    },
    Quantity {
        key: "allocations",
        words: "allocations",
        count: |p| p.calls(is_allocator),
    },
    Quantity {
        key: "locks",
        words: "locks taken",
        count: |p| p.calls(is_lock),
    },
    Quantity {
        key: "instructions",
        words: "instructions",
        count: |p| p.instructions(|_| true),
    },
    Quantity {
        key: "instructions_smc",
        words: "of these, smc",
        count: |p| p.instructions(|f| f.module == "smc"),
    },
    Quantity {
        key: "instructions_rdma",
        words: "rdma_rxe, ib_core",
        count: |p| p.instructions(|f| matches!(&*f.module, "rdma_rxe" | "ib_core" | "rdma_cm")),
    },
    Quantity {
        key: "instructions_crc",
        words: "checksums of RoCE packets",
        count: |p| p.instructions(|f| f.module == "crc32"),
    },
    Quantity {
        key: "instructions_kernel",
        words: "kernel",
        count: |p| p.instructions(|f| f.module == BUILT_IN),
    },
    Quantity {
        key: "instructions_user",
        words: "programs",
        count: |p| p.instructions(|f| f.module == USER),
    },
];

fn calls(profile: &Profile, name: &str) -> u64 {
    profile.calls(|f| f.name == name)
}

fn is_cdc_handler(function: &Function) -> bool {
    function.module == "smc"
        && (function.name == "smc_cdc_rx_handler" || function.name.ends_with("7LgrConn6on_cdc"))
}

/// The RDMA core's softirq, and the tasklets of the C module.
fn is_cq_run(function: &Function) -> bool {
    matches!(
        &*function.name,
        "ib_poll_handler" | "smc_wr_tx_tasklet_fn" | "smc_wr_rx_tasklet_fn"
    )
}

/// The slab allocator's functions that do not call each other.
fn is_allocator(function: &Function) -> bool {
    matches!(
        &*function.name,
        "kmem_cache_alloc_noprof"
            | "kmem_cache_alloc_lru_noprof"
            | "kmem_cache_alloc_node_noprof"
            | "kmem_cache_alloc_bulk_noprof"
            | "__kmalloc_noprof"
            | "__kmalloc_cache_noprof"
            | "__kmalloc_cache_node_noprof"
            | "__kmalloc_node_noprof"
            | "__kmalloc_node_track_caller_noprof"
    )
}

fn is_lock(function: &Function) -> bool {
    let is_spinning = ["_raw_spin_lock", "_raw_read_lock", "_raw_write_lock"];
    is_spinning.iter().any(|n| function.name.starts_with(n)) || function.name == "mutex_lock"
}

#[cfg(test)]
mod tests {
    use super::super::profile::Symbols;
    use super::*;

    #[test]
    fn figures_follow_from_units_and_time() {
        assert_eq!(Program::Pingpong64b.figure(1000.0, 1e8), 50.0);
        assert_eq!(Program::Pingpong4k.figure(1000.0, 1e8), 100.0);
        assert_eq!(Program::Stream64b.figure(1000.0, 5e8), 2000.0);
        assert_eq!(Program::Bulk.figure(125.0, 1_048_576_000.0), 1.0);
    }

    #[test]
    fn work_requests_are_those_of_the_requester() {
        let symbols =
            "ffffffffa0000100 t do_complete\t[rdma_rxe]\nffffffffa0000000 t do_complete\t[rdma_rxe]\n";
        let symbols = Symbols::parse(symbols).unwrap();
        let counts =
            "ffffffffa0000000 3 5 ffffffffa0000004\nffffffffa0000100 3 2 ffffffffa0000104\n";
        let profile = Profile::parse(&symbols, counts).unwrap();
        let requests = QUANTITIES.iter().find(|q| q.key == "work_requests");
        assert_eq!((requests.unwrap().count)(&profile), 5);
    }
}
