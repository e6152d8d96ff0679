//! How many lines each part of the live view gets. What people look for, the hottest segments, has room in the smallest
//! terminal; the others give their lines for it, one after the other.

/// Lines of a part beside its rows: its title, and the head of its table.
const FRAME: usize = 2;
/// Rows of the segments that there is room for at the least.
const SEGMENTS_LEAST: usize = 4;

/// Rows of each table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) segments: usize,
    pub(super) latency: usize,
    pub(super) clients: usize,
    pub(super) peers: usize,
}

/// Lines of each part, of those that do not take what is left.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heights {
    pub(super) chart: u16,
    pub(super) latency: u16,
    pub(super) clients: u16,
    pub(super) peers: u16,
    /// Parts that have something to say, and no room.
    left_out: Vec<&'static str>,
}

impl Heights {
    /// Of so many lines in all, with these rows. In a wide terminal clients and peers stand beside the segments.
    pub(super) fn within(room: usize, wide: bool, rows: Rows) -> Self {
        let Rows { segments, latency, clients, peers } = rows;
        let lines = |rows: usize, most: usize| if rows == 0 { 0 } else { rows.min(most) + FRAME };
        let under = |rows, most| if wide { 0 } else { lines(rows, most) };
        let mut wanted = [3, lines(latency, 8), under(clients, 4), under(peers, 3)];
        let [chart, latencies, rings, connections] = [0, 1, 2, 3];
        let least = [0, FRAME + 1, FRAME + 1, FRAME + 1];
        // Each gives lines until so many are left, the first one first; what has no row left has no head either.
        for (part, keeps) in [
            (chart, 1),
            (connections, 3),
            (rings, 4),
            (latencies, 5),
            (connections, 0),
            (chart, 0),
            (rings, 0),
            (latencies, 0),
        ] {
            let over = (wanted.iter().sum::<usize>() + FRAME + segments.min(SEGMENTS_LEAST)).saturating_sub(room);
            let left = wanted[part].saturating_sub(over).max(keeps).min(wanted[part]);
            wanted[part] = if left < least[part] { 0 } else { left };
        }
        if wide {
            let half = room.saturating_sub(wanted[chart] + wanted[latencies]) / 2;
            let beside = lines(peers, 8).min(half);
            wanted[connections] = if beside < least[connections] { 0 } else { beside };
        }
        let there = [(latencies, latency, "latency"), (rings, clients, "rings"), (connections, peers, "connections")];
        let left_out = there
            .into_iter()
            .filter(|&(part, rows, _)| rows > 0 && wanted[part] == 0 && !(wide && part == rings))
            .map(|(_, _, name)| name)
            .collect();
        let [chart, latency, clients, peers] = wanted.map(|lines| lines as u16);
        Self { chart, latency, clients, peers, left_out }
    }

    /// What there is no room for, behind the keys.
    pub(super) fn missing(&self) -> String {
        if self.left_out.is_empty() {
            return String::new();
        }
        format!("  no room: {}", self.left_out.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, who looks in a small terminal would see everything but what he came for.
    #[test]
    fn the_hottest_segments_are_seen_in_the_smallest_terminal() {
        for room in 6..100 {
            for wide in [false, true] {
                for (segments, latency, clients, peers) in
                    [(0, 0, 0, 0), (9, 4, 2, 2), (1, 1, 1, 1), (99, 30, 100, 100)]
                {
                    let rows = Rows { segments, latency, clients, peers };
                    let heights = Heights::within(room, wide, rows);
                    let beside = if wide { 0 } else { heights.clients + heights.peers };
                    let taken = usize::from(heights.chart + heights.latency + beside);
                    assert!(taken + FRAME + segments.min(SEGMENTS_LEAST) <= room, "{room} {wide}: {heights:?}");
                    for lines in [heights.latency, heights.clients, heights.peers] {
                        assert!(lines == 0 || usize::from(lines) > FRAME, "a head without a row: {heights:?}");
                    }
                }
            }
        }
        let rows = Rows { segments: 20, latency: 4, clients: 2, peers: 2 };
        let roomy = Heights::within(60, false, rows);
        let expected = Heights { chart: 3, latency: 6, clients: 4, peers: 4, left_out: Vec::new() };
        assert_eq!((roomy.missing(), &roomy), (String::new(), &expected));
        let small = Heights::within(19, false, rows);
        assert_eq!((small.chart, small.peers, small.missing().as_str()), (1, 3, ""));
        let tiny = Heights::within(13, false, rows);
        assert_eq!((tiny.latency, tiny.missing().as_str()), (5, "  no room: rings, connections"));
    }
}
