import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.minikdc.MiniKdc;

/**
 * HDFS with one data node, whose files are below the directory args[0]. Blocks have 1 MiB, and an answer to a request
 * for a listing has 7 files. The directory /locked is one that only another user may use, and /open one of all.
 *
 * args[1] is "plain"; or "pair": two name nodes, the second one a standby, which the line "failover" of the input makes
 * the active one; or "kerberos": everything encrypted, with settings for clients in conf/core-site.xml, and the keytab
 * of alice in alice.keytab.
 *
 * Prints "port" and those of the name nodes, with Kerberos also the path of krb5.conf. Ends with its input.
 */
public class MiniHdfs {
    public static void main(String[] args) throws Exception {
        File directory = new File(args[0]);
        HdfsConfiguration conf = new HdfsConfiguration();
        conf.set(MiniDFSCluster.HDFS_MINIDFS_BASEDIR, new File(directory, "dfs").getPath());
        conf.setLong("dfs.blocksize", 1 << 20);
        conf.setInt("dfs.ls.limit", 7);
        String more = args[1].equals("kerberos") ? " " + secure(conf, directory) : "";
        boolean isPair = args[1].equals("pair");
        MiniDFSCluster.Builder builder = new MiniDFSCluster.Builder(conf).numDataNodes(1);
        MiniDFSCluster cluster = (isPair ? builder.nnTopology(MiniDFSNNTopology.simpleHATopology()) : builder).build();
        if (isPair) {
            cluster.transitionToActive(0);
            more = " " + cluster.getNameNodePort(1);
        }
        cluster.waitActive();
        makeDirectories(cluster.getFileSystem(0));
        if (args[1].equals("kerberos")) {
            new File(directory, "conf").mkdirs();
            conf.set("fs.defaultFS", "hdfs://localhost:" + cluster.getNameNodePort());
            conf.writeXml(new FileOutputStream(new File(directory, "conf/core-site.xml")));
        }
        System.out.println("port " + cluster.getNameNodePort(0) + more);
        System.out.flush();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            cluster.transitionToStandby(0);
            cluster.transitionToActive(1);
            System.out.println("done");
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static void makeDirectories(FileSystem files) throws Exception {
        files.mkdirs(new Path("/locked"), new FsPermission((short) 0700));
        files.setOwner(new Path("/locked"), "another", "another");
        files.mkdirs(new Path("/open"));
        files.setPermission(new Path("/open"), new FsPermission((short) 0777));
    }

    private static String secure(Configuration conf, File directory) throws Exception {
        MiniKdc kdc = new MiniKdc(MiniKdc.createConf(), new File(directory, "kdc"));
        kdc.setTransport("UDP");
        kdc.start();
        File keytab = new File(directory, "hdfs.keytab");
        kdc.createPrincipal(keytab, "hdfs/localhost");
        kdc.createPrincipal(new File(directory, "alice.keytab"), "alice");
        conf.set("hadoop.security.authentication", "kerberos");
        conf.set("hadoop.security.authorization", "true");
        conf.set("hadoop.rpc.protection", "privacy");
        conf.set("dfs.data.transfer.protection", "privacy");
        conf.set("dfs.block.access.token.enable", "true");
        conf.set("ignore.secure.ports.for.testing", "true");
        for (String node : new String[] {"namenode", "datanode"}) {
            conf.set("dfs." + node + ".keytab.file", keytab.getPath());
            conf.set("dfs." + node + ".kerberos.principal", "hdfs/localhost@" + kdc.getRealm());
        }
        return kdc.getKrb5conf().getPath();
    }
}
