import java.lang.management.ManagementFactory;
import java.util.HashMap;

/** The fixed JVM loop of the calibration: prints the least CPU, in ns, of eight rounds. */
public class Calibration {
    public static void main(String[] words) {
        long least = Long.MAX_VALUE;
        long told = 0;
        for (int round = 0; round < 8; round++) {
            long before = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
            told += work();
            long after = ManagementFactory.getThreadMXBean().getCurrentThreadCpuTime();
            least = Math.min(least, after - before);
        }
        System.out.println(least + " " + told);
    }
    static long work() {
        HashMap counts = new HashMap();
        long seed = 1;
        StringBuilder text = new StringBuilder();
        for (int at = 0; at < 400000; at++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            Integer key = Integer.valueOf((int) (seed >>> 48));
            Integer known = (Integer) counts.get(key);
            counts.put(key, Integer.valueOf(known == null ? 1 : known.intValue() + 1));
            if (text.length() > 4096) { text.setLength(0); }
            text.append(seed);
        }
        return counts.size() + text.length();
    }
}
