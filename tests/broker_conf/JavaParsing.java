import java.io.StringReader;
import java.util.Properties;
import java.util.TreeMap;
import java.util.function.Function;

/** Prints what java.lang and java.util read of texts, as JSON: {"int": {text: value or null}}. */
public class JavaParsing {
    static final String[] TEXTS = {
        "5", "+5", "-5", "05", "-0", " 5", "5 ", "\t5\n", "\u00a05", "\u20035", "", " ", "+", "-", "--5", "+-5", "5_000",
        "5e3", "5.0", "1.0", "5.", ".5", "0x10", "010", "0b1", "5L", "5l", "5d", "1d", "1D", "1f", "5,000", "5 000", "\u0663", "\u0665\u0660",
        "\uff15", "\ud835\udfd7", "\u00bd", "\u00b2", "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807",
        "9223372036854775808", "-9223372036854775808", "1e400", "-1e400", "1e-400", "4.9e-324", "1.8e308", "NaN", "-NaN", "nan", "Infinity", "+Infinity",
        "-Infinity", "infinity", "inf", "0x1p3", "0x1.8p1", "0x1p", "0x1", "1e", "e5", "1e5", "1E+5", "1e-5", "1_0.5",
        "0.2", "-0.0016", "true", "TRUE", "True", " true", "true ", "false", "FALSE", "yes", "on", "1", "0", "t", "tru\u0435",
        "1.5f", "1.5D", "00", "1__0", "\u0661.\u0665", "5\u0000", "\u00005",
    };
    static final String[] FILES = {
        "a=1", "a:1", "a 1", "a\t1", "a\f1", "a = 1", "a : 1", "a  =  :1", "a=1 ", "a= 1", "a", "a=", "=1", "", " a=1", "\ta=1", "\fa=1",
        "#a=1", "!a=1", " #a=1", "a=1#2", "a=1\nb=2", "a=1\rb=2", "a=1\r\nb=2", "a=1\na=2", "a=1\nA=2", "a=1\\\n2", "a=1\\\n   2", "a=1\\\r\n 2",
        "a=1\\\\\n2", "a=1\\\n", "a=1\\", "a\\=b=c", "a\\:b=c", "a\\ b=c", "a=\\u0031", "\\u0061=1", "a=\\t\\n\\r\\f\\q\\\\", "a=\\u00e9",
        "a=b=c", "a=b:c", "a==b", "a:=b", "a\\\nb=c", "a\\\n b=c", "a=1\\\n#b\nc=2", "a=1\\\n\nb=2", "\n\n a=1", "a\\u003db=1",
        "a=\\ 1", "a=1\\ ", "a=\u00e9", "#c\\\na=1", "a=\\u00", "a=\\uzzzz", "a=\\u", "\ufeffa=1", "a=1\u0085b=2", "a=1\u2028b=2", "a=\u00a01",
        "a=1\u000bb=2", "a\u000b=1", "a=x\\\n\t y", "a\\\n=1", "a=\\\n1", " \\\na=1", "\\\n#a=1", "#\\\n#a=1", "a=\\u0020", "a=\\\\u0031",
    };
    static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            out.append(one == '"' || one == '\\' || one < 32 || one > 126 ? String.format("\\u%04x", (int) one) : "" + one);
        }
        return out.append('"').toString();
    }
    /** As Pulsar's FieldParser: trimmed first; a text that is blank is no value. */
    static void table(String name, Function<String, Object> read) {
        System.out.printf(" %s: {%n", quoted(name));
        for (int at = 0; at < TEXTS.length; at++) {
            String value;
            try {
                value = quoted(String.valueOf(read.apply(TEXTS[at].trim())));
            } catch (RuntimeException error) {
                value = "null";
            }
            System.out.printf("  %s: %s%s%n", quoted(TEXTS[at]), value, at + 1 < TEXTS.length ? "," : "");
        }
        System.out.println(" },");
    }
    public static void main(String[] given) {
        System.out.println("{");
        table("int", Integer::valueOf);
        table("long", Long::valueOf);
        table("double", Double::valueOf);
        table("boolean", Boolean::valueOf);
        System.out.println(" \"properties\": {");
        for (int at = 0; at < FILES.length; at++) {
            String value;
            try {
                Properties read = new Properties();
                read.load(new StringReader(FILES[at]));
                StringBuilder pairs = new StringBuilder("{");
                new TreeMap<>(read).forEach((key, one) -> pairs.append(pairs.length() > 1 ? ", " : "")
                    .append(quoted((String) key)).append(": ").append(quoted((String) one)));
                value = pairs.append("}").toString();
            } catch (Exception error) {
                value = "null";
            }
            System.out.printf("  %s: %s%s%n", quoted(FILES[at]), value, at + 1 < FILES.length ? "," : "");
        }
        System.out.println(" }");
        System.out.println("}");
    }
}
