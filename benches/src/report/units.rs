//! Numbers as people read them.

/// Formats a number with its significant digits only.
fn short(number: f64) -> String {
    let digits = match number.abs() {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{number:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Formats a time, given in microseconds.
pub(crate) fn time(us: f64) -> String {
    match us {
        0.0 => "0".to_owned(),
        us if us < 0.9995 => format!("{} ns", short((us * 1e3 * 10.0).round() / 10.0)),
        us if us < 999.5 => format!("{} µs", short(us)),
        us if us < 999_500.0 => format!("{} ms", short(us / 1e3)),
        us => format!("{} s", short(us / 1e6)),
    }
}

/// Formats a rate.
pub(crate) fn rate(per_s: f64) -> String {
    match per_s {
        rate if rate < 999.5 => format!("{}/s", short(rate)),
        rate if rate < 999_500.0 => format!("{} k/s", short(rate / 1e3)),
        rate => format!("{} M/s", short(rate / 1e6)),
    }
}

/// Formats a size.
pub(crate) fn bytes(bytes: f64) -> String {
    const KIB: f64 = 1024.0;
    match bytes {
        bytes if bytes < KIB => format!("{} B", short(bytes)),
        bytes if bytes < KIB * KIB => format!("{} KiB", short(bytes / KIB)),
        bytes => format!("{} MiB", short(bytes / KIB / KIB)),
    }
}

/// Formats a bandwidth, given in bytes a second, in powers of ten.
pub(crate) fn bandwidth(bytes_per_s: f64) -> String {
    match bytes_per_s {
        rate if rate < 999_500.0 => format!("{} kB/s", short(rate / 1e3)),
        rate if rate < 999.5e6 => format!("{} MB/s", short(rate / 1e6)),
        rate => format!("{} GB/s", short(rate / 1e9)),
    }
}

/// Formats a count.
pub(crate) fn count(number: f64) -> String {
    match number {
        number if number < 999.5 => short(number),
        number if number < 999_500.0 => format!("{}k", short(number / 1e3)),
        number => format!("{}M", short(number / 1e6)),
    }
}

/// Formats a number without a unit.
pub(crate) fn plain(number: f64) -> String {
    short(number)
}

/// Formats a ratio.
pub(crate) fn times(ratio: f64) -> String {
    format!("{} ×", short(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a reader would misread a figure by a factor of thousand, or have to count zeros.
    #[test]
    fn numbers_use_the_unit_with_fewest_digits() {
        let times = [0.0, 0.011, 0.4, 8.8, 22.6, 999.0, 1500.0, 2_500_000.0].map(time);
        assert_eq!(times, ["0", "11 ns", "400 ns", "8.8 µs", "22.6 µs", "999 µs", "1.5 ms", "2.5 s"]);
        assert_eq!([12.0, 1234.0, 2_500_000.0].map(rate), ["12/s", "1.23 k/s", "2.5 M/s"]);
        assert_eq!([1.0, 512.0, 4096.0, 1_048_576.0].map(bytes), ["1 B", "512 B", "4 KiB", "1 MiB"]);
        assert_eq!([512.0, 10_000.0, 1e6].map(count), ["512", "10k", "1M"]);
        assert_eq!([64e3, 5e6, 2.5e9].map(bandwidth), ["64 kB/s", "5 MB/s", "2.5 GB/s"]);
        assert_eq!(plain(100.0), "100");
    }
}
