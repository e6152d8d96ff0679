//! Heights of the parts of the live view. The busiest segments have room in the smallest terminal; other parts shrink
//! for them in a fixed order.

/// Lines of a part besides its rows: a title and a table header.
const FRAME: usize = 2;
/// Minimum number of segment rows.
const SEGMENT_ROWS_MIN: usize = 4;

/// Number of rows of each table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows {
    pub(super) segments: usize,
    pub(super) latency: usize,
    pub(super) clients: usize,
    pub(super) peers: usize,
}

/// Heights of the parts with a fixed number of lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Heights {
    pub(super) chart: u16,
    pub(super) latency: u16,
    pub(super) clients: u16,
    pub(super) peers: u16,
    /// Parts with rows for which there is no room.
    left_out: Vec<&'static str>,
}

impl Heights {
    /// Distributes `room` lines. In a wide terminal clients and peers stand beside the segments.
    pub(super) fn within(room: usize, wide: bool, rows: Rows) -> Self {
        let Rows { segments, latency, clients, peers } = rows;
        let lines = |rows: usize, most: usize| if rows == 0 { 0 } else { rows.min(most) + FRAME };
        let under = |rows, most| if wide { 0 } else { lines(rows, most) };
        let mut options = [3, lines(latency, 8), under(clients, 4), under(peers, 3)];
        let [chart, latencies, rings, connections] = [0, 1, 2, 3];
        let least = [0, FRAME + 1, FRAME + 1, FRAME + 1];
        // In this order, each part shrinks to its minimum. A part without a row has no header either.
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
            let over = (options.iter().sum::<usize>() + FRAME + segments.min(SEGMENT_ROWS_MIN)).saturating_sub(room);
            let left = options[part].saturating_sub(over).max(keeps).min(options[part]);
            options[part] = if left < least[part] { 0 } else { left };
        }
        if wide {
            let half = room.saturating_sub(options[chart] + options[latencies]) / 2;
            let beside = lines(peers, 8).min(half);
            options[connections] = if beside < least[connections] { 0 } else { beside };
        }
        let there = [(latencies, latency, "latency"), (rings, clients, "clients"), (connections, peers, "connections")];
        let left_out = there
            .into_iter()
            .filter(|&(part, rows, _)| rows > 0 && options[part] == 0 && !(wide && part == rings))
            .map(|(_, _, name)| name)
            .collect();
        let [chart, latency, clients, peers] = options.map(|lines| lines as u16);
        Self { chart, latency, clients, peers, left_out }
    }

    /// Formats the omitted parts for the line of keys.
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

    #[test]
    fn segments_are_visible_in_the_smallest_terminal() {
        for room in 6..100 {
            for wide in [false, true] {
                for (segments, latency, clients, peers) in
                    [(0, 0, 0, 0), (9, 4, 2, 2), (1, 1, 1, 1), (99, 30, 100, 100)]
                {
                    let rows = Rows { segments, latency, clients, peers };
                    let heights = Heights::within(room, wide, rows);
                    let beside = if wide { 0 } else { heights.clients + heights.peers };
                    let taken = usize::from(heights.chart + heights.latency + beside);
                    assert!(taken + FRAME + segments.min(SEGMENT_ROWS_MIN) <= room, "{room} {wide}: {heights:?}");
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
        assert_eq!((tiny.latency, tiny.missing().as_str()), (5, "  no room: clients, connections"));
    }
}
